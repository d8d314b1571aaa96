"""Observations of any space, as arrays: Dicts and Tuples laid flat, pictures recognised, choices as ones among zeros."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from redline.errors import RedlineError
from redline.worlds.encoding import Encoding, Image, OneHot, OneHots, Plain

MASK = "action_mask"
"""A part of a Dict that is a mask and no part of what is seen."""
BYTE = 255.0
MOST_CHANNELS, LEAST_SIDE, LEAST_GREY_SIDE = 32, 5, 16
KINDS = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"


def space_encoding(space: gym.Space) -> Encoding:
    """How observations of a space are stored and seen; those of a Dict or Tuple as a `Flattener` lays them flat."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        return space_encoding(Flattener(space).space)
    dtype = np.dtype(space.dtype)
    if isinstance(space, gym.spaces.Discrete):
        return OneHot(int(space.n), int(space.start), dtype)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return OneHots(tuple(space.nvec.flat), tuple(space.start.flat), space.nvec.shape, dtype)
    if isinstance(space, gym.spaces.MultiBinary):
        return Plain(space.shape, dtype)
    if isinstance(space, gym.spaces.Box) and np.prod(space.shape) > 0:
        return _picture(space) or Plain(space.shape, dtype, unit=_unit(space))
    raise RedlineError(f"Observations {space} cannot be learned from. Redline's PPO takes {KINDS}.")


def _picture(space: gym.spaces.Box) -> Image | None:
    """The encoding of pictures, if that is what a space holds: bytes or bits in rows and columns."""
    dtype, shape = np.dtype(space.dtype), space.shape
    if dtype not in (np.uint8, np.bool_):
        return None
    if len(shape) == 2 and dtype == np.uint8 and min(shape) >= LEAST_GREY_SIDE:
        return Image(shape, dtype, (1, *shape), False, _unit(space))
    if len(shape) != 3:
        return None
    first = shape[0] < shape[2]
    picture = shape if first else (shape[2], *shape[:2])
    if picture[0] > MOST_CHANNELS or min(picture[1:]) < LEAST_SIDE:
        return None
    return Image(shape, dtype, picture, not first, _unit(space))


def _unit(space: gym.spaces.Box) -> float:
    """What numbers are divided by: bytes by the largest, if they use all of their range."""
    return BYTE if space.dtype == np.uint8 and space.high.max() == BYTE else 1.0


class Flattener:
    """Turns observations of a Dict or Tuple into arrays: all parts in their order, as a network sees them, float32.

    A mask among the parts is left out. Where only one part is left, it stays as it is.
    """

    def __init__(self, space: gym.Space) -> None:
        self._parts = list(_parts(space))
        if not self._parts:
            raise RedlineError(f"Observations {space} hold nothing to learn from. Redline's PPO takes {KINDS}.")
        self.space = self._parts[0][1] if len(self._parts) == 1 else self._flat_space()

    def _flat_space(self) -> gym.spaces.Box:
        self._encodings = [space_encoding(space) for _, space in self._parts]
        size = sum(encoding.size for encoding in self._encodings)
        return gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def flat_all(self, obs: Any) -> np.ndarray:
        """One observation as the stored array, or a list of them as [n, ...]; refused if one does not fit its space."""
        several = isinstance(obs, list) or (isinstance(obs, np.ndarray) and obs.dtype == object)
        try:
            return np.stack([self.flat(each) for each in obs]) if several else np.asarray(self.flat(obs))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise RedlineError(
                f"The observation does not fit its space: {error}. Pass it as the env gives it; a batch as a list."
            ) from None

    def flat(self, obs: Any) -> Any:
        """An observation as the stored array; a ValueError says what is wrong with one that does not fit its space."""
        if len(self._parts) == 1:
            return _part(obs, self._parts[0][0])
        found = []
        for (path, space), encoding in zip(self._parts, self._encodings, strict=True):
            part = np.asarray(_part(obs, path), encoding.dtype)
            if part.shape != encoding.shape:
                raise ValueError(f"a part of the observation has shape {part.shape}, but its space says {space}")
            found.append(encoding.decode(part[None])[0])
        return np.concatenate(found, dtype=np.float32, casting="unsafe")

    def flat_batch(self, obs: Any) -> np.ndarray:
        """Observations of many envs, as a vector env gives them (each part [N, ...]), as the stored array [N, ...]."""
        if len(self._parts) == 1:
            return np.asarray(_part(obs, self._parts[0][0]))
        parts = [
            np.asarray(_part(obs, path), form.dtype)
            for (path, _), form in zip(self._parts, self._encodings, strict=True)
        ]
        found = [form.decode(part) for part, form in zip(parts, self._encodings, strict=True)]
        return np.concatenate(found, axis=1, dtype=np.float32, casting="unsafe")


def _parts(space: gym.Space, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], gym.Space]]:
    """The parts of a nested space that are seen, in order: where each stands in an observation, and its space."""
    if isinstance(space, gym.spaces.Dict):
        for name, inner in space.spaces.items():
            if name != MASK:
                yield from _parts(inner, (*path, name))
    elif isinstance(space, gym.spaces.Tuple):
        for k, inner in enumerate(space.spaces):
            yield from _parts(inner, (*path, k))
    else:
        space_encoding(space)  # refuses what cannot be learned from
        yield path, space


def _part(obs: Any, path: tuple[Any, ...]) -> Any:
    return functools.reduce(operator.getitem, path, obs)


def flattener(space: gym.Space) -> Flattener | None:
    """What lays observations of a space flat, where these are no arrays yet."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        return Flattener(space)
    space_encoding(space)
    return None


def stored_space(space: gym.Space) -> gym.Space:
    """The space of observations as they are stored."""
    flat = flattener(space)
    return space if flat is None else flat.space


def mask_space(space: gym.Space) -> gym.Space | None:
    """The space of the mask in a Dict, if there is one."""
    return space.spaces.get(MASK) if isinstance(space, gym.spaces.Dict) else None
