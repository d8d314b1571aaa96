"""Scores a policy while it is trained, and keeps the checkpoint that did best."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.config import Saving
from redline.learn.evaluate import Trained, evaluate_env, score
from redline.learn.train import Trainer, Update
from redline.runs import BEST, Run

SEED = 2_000_003
"""Added to the run's seed: the episodes that a run is scored on on the way, always the same ones."""


class Best:
    """The best policy of a run so far, by the mean return of some fresh episodes every `eval_every` steps."""

    def __init__(self, run: Run, saving: Saving) -> None:
        self._folder, self._saving, self._path = run.path / BEST, saving, run.path
        self.mean = float("-inf")
        with suppress(RedlineError):
            self.mean = float(checkpoint.load(checkpoint.latest(self._folder)).values["eval"]["mean"])

    def is_due(self, update: Update) -> bool:
        """Whether an update has come past the next multiple of `eval_every`."""
        every = self._saving.eval_every
        return every is not None and update.step // every > (update.step - update.steps) // every

    def see(self, trainer: Trainer, more: dict[str, Any]) -> dict[str, float]:
        """Score the policy, keep it if it is the best so far, and tell as metrics how it did."""
        trained = Trained(trainer.policy, trainer.config, self._path, trainer.step)
        seed = trainer.config.seed + SEED
        found = score(evaluate_env(trained, self._saving.eval_every_episodes, seed, deterministic=False))
        if found.mean > self.mean:
            self.mean = found.mean
            arrays, values = trainer.snapshot()
            values |= {**more, "eval": {"mean": found.mean, "stderr": found.stderr, "episodes": found.episodes}}
            checkpoint.save(self._folder, trainer.step, arrays, values, keep=1)
        return {"eval_return": found.mean, "eval_stderr": found.stderr}
