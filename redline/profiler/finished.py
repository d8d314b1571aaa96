"""The profile of a finished run, from what it recorded about itself."""

from __future__ import annotations

from pathlib import Path

from redline.errors import RedlineError
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
    metrics = load_metrics(run.metrics)
    steps, episodes = int(metrics["step"][-1]), int(metrics["episodes"][-1])
    config = stored_config(run.config, path, trust)
    return Profile(path.name, config, batches=[WatchedUpdate(breakdown, steps, episodes)])
