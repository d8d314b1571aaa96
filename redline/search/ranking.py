"""Judging what a search found: every trained workflow and the baselines, by the same fresh episodes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from redline.evaluate import evaluate_cage2
from redline.learn.workflow import play_workflow
from redline.runs import Run
from redline.search.search import Known
from redline.search.workflow import ALL_WORKFLOWS, FIXED_ORDERS
from redline.sims.cage2.scenario import Scenario

FRESH = 7_000_003  # added to the search's seed: episodes no training has seen


def rank(run: Run, known: dict[int, Known], episodes: int, seed: int, env_options: dict[str, Any]) -> dict[str, Any]:
    """Scores of all trained workflows, best first, of the baselines, and the best workflow that is obeyed, if any is."""
    workflows = [_entry(run, workflow_id, each, episodes, seed + FRESH) for workflow_id, each in known.items()]
    workflows.sort(key=lambda entry: (-entry["mean"], entry["workflow_id"]))
    best = next((entry for entry in workflows if entry["passed"]), None)
    return {"workflows": workflows, "baselines": baselines(env_options, episodes, seed + FRESH), "best": best}


def _entry(run: Run, workflow_id: int, known: Known, episodes: int, seed: int) -> dict[str, Any]:
    played = play_workflow(run.path / known.checkpoint, episodes, seed)
    return {
        "workflow_id": workflow_id,
        "order": str(ALL_WORKFLOWS[workflow_id]),
        **_score(played.env_returns),
        "episodes": episodes,
        "compliance": played.compliance,
        "trained_episodes": known.episodes,
        "passed": known.passed,
        "checkpoint": known.checkpoint,
    }


def _score(returns: np.ndarray) -> dict[str, float]:
    stderr = float(returns.std(ddof=1) / len(returns) ** 0.5) if len(returns) > 1 else 0.0
    return {"mean": float(returns.mean()), "stderr": stderr}


def baselines(env_options: dict[str, Any], episodes: int, seed: int) -> list[dict[str, Any]]:
    """Scores of the random policy and of the six fixed orders played greedily, in the search's own setting."""
    scenario = Scenario(
        red_agent=env_options["red_agent"], rules=env_options["rules"], max_steps=env_options["max_steps"]
    )
    found = []
    for name in ("random", *(f"greedy:{order}" for order in FIXED_ORDERS)):
        score = evaluate_cage2(
            name, scenario, episodes=episodes, lengths=[scenario.max_steps], red_agents=[scenario.red_agent],
            rule_sets=[scenario.rules], seed=seed,
        )[0]  # fmt: skip
        found.append({"name": name, "mean": score.mean, "stderr": score.stderr})
    return found


def name_best(run: Run, best: dict[str, Any]) -> Path:
    """Copy the best workflow's policy to `best/`, where it is easily found."""
    source = run.path / best["checkpoint"]
    target = run.path / "best" / source.name
    shutil.rmtree(run.path / "best", ignore_errors=True)
    shutil.copytree(source, target)
    return target
