"""Training a defender that obeys one workflow: the inner level of the workflow search."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from redline.compiled.rng import actor_seed
from redline.engines.lockstep import Lockstep
from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.acting import Actor
from redline.learn.config import TrainConfig, config_from_json, config_to_json
from redline.learn.policy import Policy
from redline.learn.restoring import refusing
from redline.learn.train import Trainer, below, load_weights, make_policy
from redline.learn.transfer import adopt_weights
from redline.learn.trust import stored_config
from redline.runs import UNDER_WAY
from redline.signature import signed
from redline.timing.stopwatch import Stopwatch
from redline.worlds.registry import make_env

SAVE_SECONDS = 1.0
TOLD = ("env_reward", "compliance")


@dataclass(frozen=True)
class Task:
    """Train one workflow, from a checkpoint of its own, from another's weights, or from scratch. Picklable."""

    workflow_id: int
    config: dict[str, Any]  # of the trainer, as JSON
    threshold: float  # mean compliance from which on it counts as obeyed
    updates: int
    folder: str  # where its checkpoints go
    own: str | None = None  # checkpoint to continue
    other: str | None = None  # checkpoint whose weights to begin with
    episode_steps: int = 100
    iteration: int = 0  # of the search; tells an interrupted training of this task from one of another
    tail: int = 1  # last updates whose mean is its score


@dataclass(frozen=True)
class Result:
    """The outcome of training a workflow."""

    workflow_id: int
    passed: bool
    env_reward: float
    compliance: float
    episodes: int  # played by this task
    checkpoint: str
    rows: list[dict[str, float]] = field(default_factory=list)  # one per update


def train_workflow(task: Task) -> Result:
    """Train for as many updates as the task says.

    Training that takes longer than a second leaves its state behind as it goes, and a task that is run again goes on
    from there, to the same result.
    """
    trainer = Trainer(config_from_json(task.config))
    under_way = Path(task.folder) / UNDER_WAY
    rows = _pick_up(trainer, task, under_way)
    _train(trainer, task, rows, under_way)
    path = _save(trainer, task, Path(task.folder), {})
    shutil.rmtree(under_way, ignore_errors=True)
    trainer.close()
    env_reward, compliance = _told(rows[-task.tail :])
    passed = compliance >= task.threshold
    played = len(rows) * trainer.config.num_envs * trainer.config.num_steps // task.episode_steps
    return Result(task.workflow_id, passed, env_reward, compliance, played, str(path), rows)


def _told(rows: list[dict[str, float]]) -> tuple[float, float]:
    """Mean reward and compliance of some updates; of none, nothing is known."""
    reward, compliance = (float(np.mean([row[key] for row in rows])) if rows else math.nan for key in TOLD)
    return reward, compliance


def _pick_up(trainer: Trainer, task: Task, under_way: Path) -> list[dict[str, float]]:
    """Put the trainer where the task begins, or where an interrupted run of this task had come to; the rows until there."""
    with suppress(RedlineError):
        found = checkpoint.load(checkpoint.latest(under_way))
        if found.values["iteration"] == task.iteration and found.values["config"] == task.config:
            trainer.restore(found.arrays, found.values)
            return list(found.values["rows"])
    if task.own is not None:
        found = checkpoint.load(Path(task.own))
        trainer.restore(found.arrays, found.values)
    elif task.other is not None:
        adopt_weights(trainer, Path(task.other))
    return []


def _save(trainer: Trainer, task: Task, folder: Path, more: dict[str, Any]) -> Path:
    arrays, values = trainer.snapshot()
    values |= {"config": task.config, "episode_steps": task.episode_steps, **more}
    return checkpoint.save(folder, trainer.step, arrays, values, keep=2)


def _borrow_weights(policy: Policy, path: Path) -> None:
    with refusing(str(path)):
        load_weights(policy, below(checkpoint.load(path).arrays, "policy"))


def _train(trainer: Trainer, task: Task, rows: list[dict[str, float]], under_way: Path) -> None:
    """Add rows until the task is done."""
    saved_at = time.monotonic()
    while len(rows) < task.updates:
        rows.append(_row(trainer.update()))
        if time.monotonic() - saved_at > SAVE_SECONDS:
            _save(trainer, task, under_way, {"iteration": task.iteration, "rows": rows})
            saved_at = time.monotonic()


def _row(update: Any) -> dict[str, float]:
    nothing_to_obey = {"env_return": update.metrics["return"], "alignment": 0.0, "compliance": 0.0, "fixes": 0.0}
    metrics, seconds = nothing_to_obey | update.metrics, update.breakdown.seconds
    return {
        "update": update.number,
        "episodes": update.episodes,
        "env_reward": metrics["env_return"],
        "alignment_reward": metrics["alignment"],
        "total_reward": metrics["return"],
        "compliance": metrics["compliance"],
        "fixes": metrics["fixes"],
        "collect_seconds": round(seconds["collect",], 6),
        "update_seconds": round(seconds["learn",], 6),
    }


@dataclass(frozen=True)
class Obeyed:
    """How a workflow's policy does in fresh episodes."""

    env_returns: np.ndarray
    compliance: float


def play_workflow(path: Path, episodes: int, seed: int) -> Obeyed:
    """Fresh episodes of a workflow's policy: the environment's own reward, and how obedient it was."""
    found = checkpoint.load(path)
    config = stored_config(found.values.get("config"), found.path)
    env = make_env(config.env, episodes, encoded=True, **config.env_options)
    policy = make_policy(env, config, seed=0)
    _borrow_weights(policy, path)
    steps = int(
        found.values.get("episode_steps", config.env_options.get("max_steps", 100))
    )  # earlier versions kept none
    rollout = Lockstep(env, seed).collect(Actor(policy, episodes, actor_seed(seed)), steps, Stopwatch())
    return Obeyed(rollout.episode_metrics["env_return"], float(rollout.episode_metrics["compliance"].mean()))


def workflow_config(base: TrainConfig, env_options: dict[str, Any], seed: int) -> dict[str, Any]:
    """The settings of one workflow's training, as JSON."""
    config = config_to_json(dataclasses.replace(base, env_options=env_options, seed=seed))
    as_stored = json.loads(json.dumps(config))  # a checkpoint returns lists where the config has tuples
    return signed(as_stored)
