"""Where else the metrics of a run can go: TensorBoard and Weights & Biases.

Both know the metrics by CleanRL's names, and the settings of the run as its hyperparameters. Neither can
stop a run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from redline.errors import RedlineError, install, unknown
from redline.learn.train import Update
from redline.runs import TENSORBOARD

PROJECT = "redline"
"""The W&B project, unless WANDB_PROJECT names another."""
RENAMED = {
    "return": "charts/episodic_return",
    "length": "charts/episodic_length",
    "learning_rate": "charts/learning_rate",
    "kl": "losses/approx_kl",
    "clipped": "losses/clipfrac",
}
LOSSES = ("loss", "policy_loss", "value_loss", "entropy", "explained_variance", "imitation", "gradient_steps")


def scalars(update: Update) -> dict[str, float]:
    """The metrics of an update by CleanRL's names, without those that are no numbers."""
    named = {_name(name): value for name, value in update.metrics.items() if math.isfinite(value)}
    seconds = update.breakdown.total_seconds
    return {**named, "charts/SPS": update.steps / seconds} if seconds else named


def _name(metric: str) -> str:
    if metric in RENAMED:
        return RENAMED[metric]
    return f"losses/{metric}" if metric in LOSSES else f"charts/{metric}"


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, bool | int | float | str]:
    """Settings as one dict of plain values: `ppo.learning_rate`."""
    found: dict[str, bool | int | float | str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{above}{name}.")
        elif value is not None:
            found[above + name] = value if isinstance(value, bool | int | float | str) else str(value)
    return found


class Logger(Protocol):
    """Takes the metrics of a run."""

    def write(self, metrics: dict[str, float], step: int) -> None:
        """Those of one update."""

    def close(self) -> None:
        """There are no more."""


class TensorBoard:
    """Event files in the run folder."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self._writer = SummaryWriter(str(folder / TENSORBOARD))
        for summary in hparams(flat(settings), {"charts/episodic_return": 0.0}):
            self._writer.file_writer.add_summary(summary)  # type: ignore[attr-defined]

    def write(self, metrics: dict[str, float], step: int) -> None:
        """A point of each chart."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Bring the last points to the disk."""
        self._writer.close()


class WandB:
    """Weights & Biases, as its own environment variables (WANDB_MODE, WANDB_PROJECT, …) have it."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        import wandb

        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(project=project, name=folder.name, dir=str(folder), config=flat(settings))

    def write(self, metrics: dict[str, float], step: int) -> None:
        """One row of its history."""
        self._run.log(metrics, step=step)

    def close(self) -> None:
        """Let it send what is left."""
        self._run.finish()


class LoggerKind:
    """A logger that can be asked for: how it is made, and what must be installed for it."""

    def __init__(self, make: Callable[[Path, dict[str, Any]], Logger], package: str) -> None:
        self.make, self.package = make, package


LOGGERS = {
    "tensorboard": LoggerKind(TensorBoard, "tensorboard"),
    "wandb": LoggerKind(WandB, "wandb"),
}


class Loggers:
    """All loggers of a run. One that fails is given up with a line, and the run goes on."""

    def __init__(
        self, names: Sequence[str], folder: Path, settings: dict[str, Any], warn: Callable[[str], None]
    ) -> None:
        self._warn = warn
        self._loggers: dict[str, Logger] = {}
        for name in dict.fromkeys(names):
            self._attempt(name, partial(self._begin, name, folder, settings))

    def _begin(self, name: str, folder: Path, settings: dict[str, Any]) -> None:
        self._loggers[name] = LOGGERS[name].make(folder, settings)

    def write(self, update: Update) -> None:
        """Hand an update to all of them."""
        if self._loggers:
            metrics = scalars(update)
            for name, logger in list(self._loggers.items()):
                self._attempt(name, partial(logger.write, metrics, update.step))

    def close(self) -> None:
        """There are no more updates."""
        for name, logger in list(self._loggers.items()):
            self._attempt(name, logger.close)
        self._loggers.clear()

    def _attempt(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._loggers.pop(name, None)
            why = " ".join(f"{type(error).__name__}: {error}".split())
            self._warn(f"--log {name} is given up, and the run goes on without it: {why[:300]}")


def require_loggers(names: Sequence[str]) -> None:
    """Refuse loggers that do not exist or are not installed."""
    for name in names:
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
        package = LOGGERS[name].package
        if not _is_installed(package):
            raise RedlineError(f"--log {name} needs {package}. Try: {install(name)}")


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # somebody has put nothing in its place
        return False
