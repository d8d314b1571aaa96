"""Training with several settings and seeds: the plan of a sweep, and the part of it that one process does.

Successive halving: all settings train for a part of their steps, the better half goes on, and so forth. A run that is
stopped on the way is an ordinary run that can go on, bit for bit, so a sweep can be broken off and resumed anywhere.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.files import warn_on_stderr
from redline.learn import checkpoint
from redline.learn.config import Saving, TrainConfig, config_from_json, config_to_json
from redline.learn.evaluate import Trained, grade_returns
from redline.learn.session import Session
from redline.learn.train import Trainer
from redline.metrics import final_return, load_metrics
from redline.runs import CHECKPOINTS, CONFIG, METRICS, SCORES, STEP, Run

KEPT_TO_THE_END = 2
"""Settings that halving never goes below: one alone cannot be compared."""
SEED_STRIDE = 1009
"""Between the seeds of a sweep, so that none of them shares envs with another."""


class NotSaved(RedlineError):
    """A run of a sweep could not be kept. The command line prints it as one line and exits with code 1."""

    exit_code = 1


@dataclass(frozen=True)
class Job:
    """A run of a sweep: where it is, what it trains, and up to which step."""

    folder: str
    config: dict[str, Any]
    until: int
    score_episodes: int
    """Episodes to score it on once it has all its steps; 0 scores nothing."""


def grid(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of some settings."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def draw(axes: Mapping[str, Sequence[Any] | Span], count: int, seed: int) -> list[dict[str, Any]]:
    """Combinations drawn at random; of a span, any number within it."""
    rng = np.random.default_rng(seed)
    return [{name: _drawn(values, rng) for name, values in axes.items()} for _ in range(count)]


@dataclass(frozen=True)
class Span:
    """Numbers from `low` to `high`: whole ones each as likely, others as likely in every order of magnitude."""

    low: float
    high: float
    whole: bool

    def at(self, share: float) -> float | int:
        """The number that lies a share of the way up."""
        if self.whole:
            return int(self.low + share * (self.high - self.low + 1))
        if self.low > 0:
            return float(f"{self.low * (self.high / self.low) ** share:.4g}")
        return float(f"{self.low + share * (self.high - self.low):.4g}")


def _drawn(values: Sequence[Any] | Span, rng: np.random.Generator) -> Any:
    return values.at(rng.random()) if isinstance(values, Span) else values[int(rng.integers(len(values)))]


def rungs(points: int, halving: bool) -> list[float]:
    """The shares of its steps after which a sweep looks at who is better: the last is always all of them."""
    if not halving or points <= KEPT_TO_THE_END + 1:
        return [1.0]
    rounds = max(1, math.ceil(math.log2(points / KEPT_TO_THE_END)))
    return [0.5**k for k in range(rounds, -1, -1)]


def survivors(points: int) -> int:
    """How many of so many settings go on."""
    return max(KEPT_TO_THE_END, math.ceil(points / 2))


def seeds_from(first: int, count: int) -> list[int]:
    """The seeds of a sweep."""
    return [first + SEED_STRIDE * k for k in range(count)]


def require_steps(config: TrainConfig) -> int:
    """How many steps a run has; a sweep cannot halve episodes."""
    if config.total_episodes is not None:
        raise RedlineError("A sweep counts steps. Pass --total-steps instead of --total-episodes.")
    steps = config.steps_goal
    assert steps is not None
    return steps


def train_until(job: Job) -> float:
    """Train a run up to a step: from its beginning, or from where it was left. Returns its return of late.

    Runs alone in its process. A run that has all its steps is scored, as `redline train` would.
    """
    folder, config = Path(job.folder), config_from_json(job.config)
    run = Run.open(folder) if (folder / CONFIG).exists() else Run.at(folder, config_to_json(config))
    with run.locked():
        session = _session(run, config)
        try:
            while session.trainer.step < job.until and session.trainer.progress < 1.0:
                session.update()
            if not session.save():
                raise NotSaved(f"{folder}: no checkpoint of step {session.trainer.step:,} could be written.")
            if session.trainer.progress >= 1.0 and job.score_episodes and not (folder / SCORES).exists():
                _score(session, job.score_episodes)
        finally:
            session.close()
    return late_return(folder)


def _session(run: Run, config: TrainConfig) -> Session:
    saving = Saving(keep=1)
    if checkpoint.has_any(run.checkpoints):
        return Session.resume(run.path, saving, warn_on_stderr)
    run.metrics.unlink(missing_ok=True)  # of a run that was ended before its first checkpoint
    return Session.begin(run, Trainer(config), saving, warn_on_stderr)


def _score(session: Session, episodes: int) -> None:
    trainer = session.trainer
    trained = Trained(trainer.policy, trainer.config, session.run.path, trainer.step)
    graded = (trainer.world.grade or grade_returns)(trained, episodes, trainer.config.seed + 1_000_003)
    for name, data in graded.files.items():
        session.write_json(name, data)


def late_return(folder: Path) -> float:
    """The final return of a run; minus infinity where no episode ended."""
    found = final_return(load_metrics(folder / METRICS)["return"])
    return -math.inf if math.isnan(found) else found


def is_done(job: Job) -> bool:
    """Whether a run has come as far as a job asks."""
    folder = Path(job.folder)
    reached = [
        int(path.name.removeprefix(STEP)) for path in (folder / CHECKPOINTS).glob(f"{STEP}*") if path.name[5:].isdigit()
    ]
    steps = require_steps(config_from_json(job.config))
    scored = job.until < steps or not job.score_episodes or (folder / SCORES).exists()
    return bool(reached) and max(reached) >= job.until and scored


def with_seed(config: TrainConfig, seed: int) -> TrainConfig:
    """The same settings with another seed, on one thread: a sweep fills the cores with runs instead."""
    return dataclasses.replace(config, seed=seed, threads=1)
