"""Judging what a search found: every trained workflow and the baselines, by the same fresh episodes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from redline.learn.evaluate import score
from redline.runs import BEST, Run
from redline.search.search import Known
from redline.search.top_two import Groups, Posterior
from redline.search.training import play_workflow
from redline.worlds.workflows import Workflows

FRESH = 7_000_003  # added to the search's seed: episodes no training has seen


def rank(
    run: Run,
    workflows: Workflows,
    settings: Any,
    known: Mapping[int, Known],
    trainings: Mapping[int, list[Known]],
    groups: Groups,
    episodes: int,
    seed: int,
) -> dict[str, Any]:
    """Every trained workflow, best first, the baselines and the best workflow that is obeyed, if any is.

    `tied` are the workflows that cannot be told from the best, trained or not, one for all that are alike.
    """
    played = {
        id: [play_workflow(run.path / each.checkpoint, episodes, seed + FRESH) for each in mine]
        for id, mine in trainings.items()
    }
    means = {id: [float(each.env_returns.mean()) for each in mine] for id, mine in played.items()}
    posterior = Posterior(groups, means)
    scores, stds = posterior.of_all()
    trained: list[dict[str, Any]] = [
        {
            "workflow_id": id,
            "order": workflows.name(id),
            "mean": float(scores[id]),
            "stderr": float(stds[id]),
            "episodes": episodes,
            "trainings": len(mine),
            "scores": means[id],
            "compliance": float(np.mean([each.compliance for each in mine])),
            "trained_episodes": known[id].episodes,
            "passed": known[id].passed,
            "checkpoint": trainings[id][int(np.argmax(means[id]))].checkpoint,
            "alike": groups.alike(id),
        }
        for id, mine in played.items()
    ]
    trained.sort(key=lambda entry: (-entry["mean"], entry["workflow_id"]))
    best = next((entry for entry in trained if entry["passed"]), None)
    return {
        "workflows": trained,
        "baselines": workflows.baselines(settings, episodes, seed + FRESH),
        "best": best,
        "tied": _tied(posterior, groups, best, trained),
    }


def _tied(
    posterior: Posterior, groups: Groups, best: dict[str, Any] | None, trained: list[dict[str, Any]]
) -> list[int]:
    """Who cannot be told from the best, the best included; nobody where none was obeyed."""
    if best is None:
        return []
    barred = {entry["workflow_id"] for entry in trained if not entry["passed"]}
    same = posterior.tied(best["workflow_id"])
    return [int(id) for id, is_tied in zip(groups.first, same, strict=True) if is_tied and id not in barred]


def score_defender(run: Run, checkpoint: str, episodes: int, seed: int) -> dict[str, Any]:
    """Mean and standard error of one policy over episodes by which nothing was chosen."""
    played = play_workflow(run.path / checkpoint, episodes, seed + 2 * FRESH)
    found = score(played.env_returns)
    return {"mean": found.mean, "stderr": found.stderr, "episodes": episodes, "compliance": played.compliance}


def name_best(run: Run, best: dict[str, Any]) -> Path:
    """Copy the best workflow's policy to `best/`, where it is easily found."""
    source = run.path / best["checkpoint"]
    target = run.path / BEST / source.name
    shutil.rmtree(run.path / BEST, ignore_errors=True)
    shutil.copytree(source, target)
    return target
