"""Weights of another run to begin with; inputs are matched by name where the observation has grown."""

from __future__ import annotations

from pathlib import Path

from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.agent import describe
from redline.learn.grow import grow
from redline.learn.restoring import refusing
from redline.learn.train import Trainer, below, load_weights
from redline.learn.trust import stored_config


def adopt_weights(trainer: Trainer, path: Path, trust: bool = False) -> str:
    """Have a trainer begin with the weights of a run or checkpoint. Returns what was done, in words.

    One that this user has not made is refused if it names code, unless `trust` says that this is fine.
    """
    found = checkpoint.load(checkpoint.resolve(path))
    before = describe(stored_config(found.values.get("config"), found.path, trust)).encoding
    after = trainer.policy.encoding
    weights = below(found.arrays, "policy")
    then, now = (tuple(getattr(encoding, "names", ())) for encoding in (before, after))
    if then == now and before.size == after.size:
        with refusing(str(found.path)):
            load_weights(trainer.policy, weights)
        return f"Beginning with the weights of {found.path} (step {found.step:,})."
    try:
        grow(trainer.policy, weights, then)
    except RedlineError as error:
        raise RedlineError(f"{path} cannot be begun with. {error}") from error
    new = f"{len(set(now) - set(then))} of {after.size} inputs are new and count for nothing yet"
    return f"Beginning with the weights of {found.path} (step {found.step:,}); {new}."
