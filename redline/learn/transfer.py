"""Weights from one network into another whose observations have grown: inputs are matched by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.agent import describe
from redline.learn.train import Trainer, below
from redline.learn.trust import stored_config
from redline.worlds.encoding import Encoding

FIRST_LAYERS = ("trunk.0.weight", "critic_trunk.0.weight")
"""The arrays whose columns are inputs, by the names that checkpoints have for them."""


def adopt_weights(trainer: Trainer, path: Path, trust: bool = False) -> str:
    """Have a trainer begin with the weights of a run or checkpoint. Returns what was done, in words.

    One that this user has not made is refused if it names code, unless `trust` says that this is fine.
    """
    found = checkpoint.load(checkpoint.resolve(path))
    before = describe(stored_config(found.values.get("config"), found.path, trust)).encoding
    after = trainer.engine.env.encoding
    old, new = input_names(before), input_names(after)
    if not (old and new) and before.size != after.size:
        raise RedlineError(
            f"{path} sees {before.size} numbers and {trainer.config.env} has {after.size}, of which nobody knows the names. "
            "Begin without --from."
        )
    fresh = trainer.policy.arrays()
    try:
        grown = grow_inputs(below(found.arrays, "policy"), old or range(before.size), new or range(after.size), fresh)
    except RedlineError as error:
        raise RedlineError(f"{path} cannot be begun with: {error}") from error
    trainer.policy.load(grown)
    added = len(set(new) - set(old)) if old and new else 0
    more = f"; {added} of {after.size} inputs are new and count for nothing yet" if added else ""
    return f"Beginning with the weights of {found.path} (step {found.step:,}){more}."


def input_names(encoding: Encoding) -> tuple[str, ...]:
    """What each number that a network sees is called; empty where nobody has named them."""
    names = tuple(getattr(encoding, "names", ()))
    return names if len(set(names)) == len(names) == encoding.size else ()


def grow_inputs(
    weights: Mapping[str, np.ndarray],
    old: Sequence[object],
    new: Sequence[object],
    fresh: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """`weights` of a network with inputs `old` as those of one with inputs `new`, which has `fresh` ones now.

    New inputs weigh nothing, so that it plays as before. Inputs that are gone are forgotten.
    """
    grown: dict[str, np.ndarray] = {}
    for name, array in fresh.items():
        given = weights.get(name)
        if given is not None and name in FIRST_LAYERS:
            given = _columns_by_name(given, old, new)
        if given is None or given.shape != array.shape:
            theirs = "none" if given is None else list(given.shape)
            raise RedlineError(
                f"its {name} has shape {theirs}, and {list(array.shape)} is needed. Use the same --hidden."
            )
        grown[name] = given.astype(array.dtype)
    return grown


def _columns_by_name(weight: np.ndarray, old: Sequence[object], new: Sequence[object]) -> np.ndarray:
    grown = np.zeros((len(weight), len(new)), weight.dtype)
    place = {name: k for k, name in enumerate(old)}
    for k, name in enumerate(new):
        if name in place:
            grown[:, k] = weight[:, place[name]]
    return grown
