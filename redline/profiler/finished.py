"""The profile of a finished run, from what it recorded about itself."""

from __future__ import annotations

from pathlib import Path

from redline.engines import ENGINES
from redline.errors import RedlineError, unknown
from redline.learn.trust import stored_config
from redline.metrics import load_metrics
from redline.profiler.record import Profile, WatchedUpdate
from redline.runs import BREAKDOWN, Run
from redline.timing.breakdown import Breakdown


def profile_of_run(path: Path, trust: bool = False) -> Profile:
    """The profile of a run folder: one batch that holds everything."""
    run = Run.open(path)
    try:
        breakdown = Breakdown.from_json(run.read_json(BREAKDOWN))
    except (KeyError, TypeError, ValueError) as error:
        raise RedlineError(f"{path / BREAKDOWN} is no breakdown: {error!r}.") from error
    steps, episodes = (_last(run.metrics, name) for name in ("step", "episodes"))
    config = stored_config(run.config, path, trust)
    if config.engine not in ENGINES:
        raise unknown("engine", config.engine, ENGINES)
    return Profile(path.name, config, batches=[WatchedUpdate(breakdown, steps, episodes)])


def _last(metrics: Path, name: str) -> int:
    """The last number in a column of a run's metrics."""
    try:
        return int(float(load_metrics(metrics)[name][-1]))
    except (KeyError, IndexError, ValueError, OverflowError):
        raise RedlineError(
            f"{metrics} has no number of {name} in its last row, so nothing can be said about its speed. "
            "Profile a run that has made an update."
        ) from None
