"""Judging what a search found: every trained workflow and the baselines, by the same fresh episodes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from redline.learn.evaluate import score
from redline.learn.workflow import play_workflow
from redline.runs import BEST, Run
from redline.search.search import Known
from redline.worlds.workflows import Workflows

FRESH = 7_000_003  # added to the search's seed: episodes no training has seen


def rank(
    run: Run, workflows: Workflows, settings: Any, known: dict[int, Known], episodes: int, seed: int
) -> dict[str, Any]:
    """Scores of all trained workflows, best first, of the baselines, and the best workflow that is obeyed, if any is."""
    trained = [_entry(run, workflows, id, each, episodes, seed + FRESH) for id, each in known.items()]
    trained.sort(key=lambda entry: (-entry["mean"], entry["workflow_id"]))
    best = next((entry for entry in trained if entry["passed"]), None)
    untrained = workflows.baselines(settings, episodes, seed + FRESH)
    return {"workflows": trained, "baselines": untrained, "best": best}


def _entry(run: Run, workflows: Workflows, id: int, known: Known, episodes: int, seed: int) -> dict[str, Any]:
    played = play_workflow(run.path / known.checkpoint, episodes, seed)
    found = score(played.env_returns)
    return {
        "workflow_id": id,
        "order": workflows.name(id),
        "mean": found.mean,
        "stderr": found.stderr if len(played.env_returns) > 1 else 0.0,
        "episodes": episodes,
        "compliance": played.compliance,
        "trained_episodes": known.episodes,
        "passed": known.passed,
        "checkpoint": known.checkpoint,
    }


def name_best(run: Run, best: dict[str, Any]) -> Path:
    """Copy the best workflow's policy to `best/`, where it is easily found."""
    source = run.path / best["checkpoint"]
    target = run.path / BEST / source.name
    shutil.rmtree(run.path / BEST, ignore_errors=True)
    shutil.copytree(source, target)
    return target
