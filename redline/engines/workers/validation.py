"""Checks of what envs answer. An answer that fails one is named in words and gets no further."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_REWARD = float(np.finfo(np.float32).max)


class BadAnswer(Exception):
    """An answer that is none; the text says why."""


def require_step_answer(answer: Any) -> None:
    """Refuse what is not the five values of a step."""
    if not isinstance(answer, tuple) or len(answer) != 5:
        count = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        old = " (the old gym API: wrap the env so that it tells terminated from truncated)"
        hint = old if count == "4 values" else ""
        raise BadAnswer(f"step returned {count} instead of (obs, reward, terminated, truncated, info){hint}")
    if not isinstance(answer[4], dict):
        raise BadAnswer(f"the info is {shown(answer[4])}, not a dict")


def require_reset_answer(answer: Any) -> None:
    """Refuse what is not the two values of a reset."""
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
        raise BadAnswer("reset did not return (observation, info); wrap an old gym env first")


def checked_observation(obs: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The observation as an array, if it is what its space says."""
    try:
        plain = isinstance(obs, int | float | list | tuple)  # has no dtype of its own
        found = np.asarray(obs, dtype if plain else None)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadAnswer(f"the observation {shown(obs)} is no array: {error}") from None
    if found.shape != shape:
        raise BadAnswer(f"the observation has shape {found.shape}, but its space says {shape}")
    if not np.can_cast(found.dtype, dtype):
        raise BadAnswer(f"the observation has dtype {found.dtype}, but its space says {dtype}")
    return found


def require_finite(obs: np.ndarray) -> None:
    """Refuse NaN and infinity."""
    if not np.isfinite(obs).all():
        raise BadAnswer(where_not_finite(obs))


def where_not_finite(obs: np.ndarray) -> str:
    """The first value of an observation that is no number, and how many there are."""
    flat = np.flatnonzero(~np.isfinite(obs.reshape(-1)))
    return f"the observation holds {obs.reshape(-1)[flat[0]]} at place {flat[0]} ({len(flat)} of {obs.size} values)"


def checked_reward(reward: Any) -> float:
    """The reward as a float, if it is a finite number."""
    kind = type(reward)
    if kind is not float:
        if not isinstance(reward, int | float | np.generic) and not (kind is np.ndarray and reward.ndim == 0):
            raise BadAnswer(f"the reward is {shown(reward)}, not a number")
        try:
            reward = float(reward)
        except (TypeError, ValueError, OverflowError):
            raise BadAnswer(f"the reward is {shown(reward)}, not a number") from None
    if not -MOST_REWARD <= reward <= MOST_REWARD:  # NaN is not, either
        raise BadAnswer(f"the reward is {reward}, which is no finite 32-bit number")
    return reward


def checked_flag(flag: Any) -> bool:
    """Terminated or truncated as a bool, if it is one or could be."""
    if flag is True or flag is False:
        return bool(flag)
    if isinstance(flag, np.bool_ | int | np.integer) or (isinstance(flag, np.ndarray) and flag.ndim == 0):
        return bool(flag)
    raise BadAnswer(f"terminated or truncated is {shown(flag)}, not True or False")


def checked_mask(mask: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """A mask with one truth value per action, those of each component behind each other, each allowing at least one."""
    if isinstance(mask, tuple | list) and len(mask) == len(sizes) and all(np.ndim(part) == 1 for part in mask):
        mask = np.concatenate(mask)  # one array per component, as Gymnasium's spaces have it
    total = sum(sizes)
    if mask is None or np.shape(mask) != (total,):
        given = None if mask is None else np.shape(mask)
        raise BadAnswer(f"info['action_mask'] has shape {given}, but one truth value per action is due ({total})")
    found, first = np.asarray(mask, np.bool_), 0
    for c, size in enumerate(sizes):
        if not found[first : first + size].any():
            where = f" in component {c}" if len(sizes) > 1 else ""
            raise BadAnswer(f"info['action_mask'] allows no action at all{where}")
        first += size
    return found


def shown(value: Any) -> str:
    """A value in a few words."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def told_metrics(info: dict[str, Any]) -> dict[str, float]:
    """The numbers that an env tells about an episode that has ended, in `info["episode_metrics"]`."""
    told = info.get("episode_metrics")
    if not isinstance(told, dict):
        return {}
    return {str(name): float(value) for name, value in told.items() if isinstance(value, int | float | np.number)}
