"""A training run that leaves a folder behind: metrics, checkpoints, the time breakdown. Interrupt it and it can go on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.files import guarded
from redline.learn import checkpoint
from redline.learn.best import Best
from redline.learn.config import Saving, TrainConfig, config_to_json
from redline.learn.loggers import Loggers
from redline.learn.train import Trainer, Update, trainer_for
from redline.learn.trust import require_checkable, stored_config
from redline.metrics import MetricsLog
from redline.runs import BEST, BREAKDOWN, CONFIG, REPORT, SCORES, SEARCH_STATE, STEP, Run
from redline.signature import is_signed, signed
from redline.timing.breakdown import Breakdown, merge
from redline.version import __version__
from redline.worlds.registry import is_compiled


def find_run(path: Path) -> Run:
    """The run that `path`, a run folder or one of its checkpoints, belongs to."""
    if (path / SEARCH_STATE).exists():
        raise RedlineError(f"{path} is a workflow search. Go on with it by: redline search --resume {path}")
    return Run.open(checkpoint.resolve(path).parent.parent)


class Session:
    """Trains in a run folder. Iterate to train; every update is logged before it is handed out."""

    def __init__(
        self, run: Run, trainer: Trainer, saving: Saving, warn: Callable[[str], None], resume_at_step: int | None = None
    ) -> None:
        self.run, self.trainer, self.saving = run, trainer, saving
        self.breakdown = Breakdown(0.0)
        self.last_checkpoint: Path | None = None
        self._saved_at = time.monotonic()
        self._log = MetricsLog(run.metrics, resume_at_step, warn=warn)
        self._save = guarded(self._write_checkpoint, warn, "a checkpoint")
        self.best = Best(run, saving)
        self.write_json = guarded(run.write_json, warn, "to the run folder")
        self._loggers = Loggers(saving.loggers, run.path, config_to_json(trainer.config), warn)

    @classmethod
    def begin(cls, run: Run, trainer: Trainer, saving: Saving, warn: Callable[[str], None]) -> Session:
        """A new run."""
        return cls(run, trainer, saving, warn)

    @classmethod
    def resume(
        cls,
        path: Path,
        saving: Saving,
        warn: Callable[[str], None],
        trust: bool = False,
        total_steps: int | None = None,
    ) -> Session:
        """Go on from a run's newest checkpoint, or from the one that `path` names; to `total_steps`, if given.

        A run that this user has not made is refused if it names code, unless `trust` says that this is fine.
        """
        found = checkpoint.load(checkpoint.resolve(path))
        run = find_run(path)
        config = stored_config(run.config, run.path, trust)
        if trust:
            run = run.adopted()
        if not (found.ours or trust):
            require_checkable(config, found.path)
        if total_steps is not None:
            run = _extended(run, found.step, total_steps)
            config = dataclasses.replace(config, total_steps=total_steps, total_episodes=None)
        trainer = trainer_for(config)
        if not trainer.restore(found.arrays, found.values, str(found.path)):
            warn(f"The checkpoint holds no envs ({_why_no_envs(config)}): they begin new episodes.")
        later = [each for each in run.checkpoints.glob(f"{STEP}*") if each.name > found.path.name]
        if later:
            warn(f"Going on from step {found.step:,}: the {len(later)} checkpoints after it are deleted.")
        checkpoint.discard_after(run.checkpoints, found.step)
        checkpoint.discard_after(run.path / BEST, found.step)
        session = cls(run, trainer, saving, warn, resume_at_step=found.step)
        session.last_checkpoint = found.path
        with suppress(RedlineError):
            session.breakdown = Breakdown.from_json(run.read_json(BREAKDOWN))
        return session

    def __iter__(self) -> Iterator[Update]:
        """Train to the end."""
        watch = self.trainer.watch
        watch.lap()
        while self.trainer.progress < 1.0:
            update = self.update()
            with watch.span("log"):
                yield update  # what is done with it there counts as logging, too

    def update(self) -> Update:
        """One update, logged, and a checkpoint when it is time for one."""
        update = self.trainer.update()
        with self.trainer.watch.span("log"):
            self.breakdown = merge([self.breakdown, update.breakdown])
            if self.best.is_due(update):
                update.metrics.update(self.best.see(self.trainer, self._about()))
            self._log.append(_row(update))
            self._loggers.write(update)
            if time.monotonic() - self._saved_at > self.saving.checkpoint_seconds:
                self.save()
                self._saved_at = time.monotonic()
        return update

    def save(self) -> bool:
        """Write a checkpoint now. Returns whether that worked. Weights that are spoiled are never written."""
        self._log.sync()
        self.write_json(BREAKDOWN, self.breakdown.to_json())
        return bool(np.isfinite(self.trainer.policy.vector).all()) and self._save()

    def save_what_is_good(self) -> None:
        """After an update that came to nothing: write a checkpoint from before it, unless there is one."""
        step = f"{STEP}{self.trainer.step:012d}"
        if self.last_checkpoint is None or self.last_checkpoint.name != step:
            self.save()

    def _write_checkpoint(self) -> None:
        if not self.trainer.is_savable and checkpoint.has_any(self.run.checkpoints):
            return  # the envs are in the middle of something: what there is goes on exactly, and this would not
        arrays, values = self.trainer.snapshot()
        values |= self._about()
        folder, keep = self.run.checkpoints, self.saving.keep
        self.last_checkpoint = checkpoint.save(folder, self.trainer.step, arrays, values, keep)

    def _about(self) -> dict[str, Any]:
        return {"config": signed(config_to_json(self.trainer.config)), "version": __version__}

    def close(self) -> None:
        """Let go of files and envs."""
        self._log.close()
        self._loggers.close()
        self.trainer.close()


def _extended(run: Run, step: int, total_steps: int) -> Run:
    """The run with another end, which is written down: whoever resumes it later goes on to the same one.

    Score and report of the old end go: they are made again at the new one.
    """
    if total_steps <= step:
        raise RedlineError(f"{run.path} has {step:,} steps already. Try --total-steps {2 * step}.")
    config = {**run.config, "total_steps": total_steps, "total_episodes": None}
    longer = Run(run.path, signed(config) if is_signed(run.config) else config)
    longer.write_json(CONFIG, longer.config)
    for name in (SCORES, REPORT):
        (run.path / name).unlink(missing_ok=True)
    return longer


def _row(update: Update) -> dict[str, Any]:
    seconds = update.breakdown.total_seconds
    timing = {"seconds": round(seconds, 6), "steps_per_second": round(update.steps / seconds)}
    return {"step": update.step, "update": update.number, "episodes": update.episodes, **update.metrics, **timing}


def _why_no_envs(config: TrainConfig) -> str:
    """Why a checkpoint has none, as far as the settings tell."""
    if config.engine in ("pool", "ray"):
        return f"engine {config.engine} plays whole episodes elsewhere"
    if not is_compiled(config.env):
        return f"{config.env} is Python, which cannot be saved without running code from a file"
    return "one had failed, or a step was under way"
