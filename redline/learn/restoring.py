"""Looks through what a checkpoint holds before anything is made of it: shapes, types and ranges.

Checksums tell that a file is as it was written, not by whom. No number of it may reach compiled code, or the policy, that
training itself could not have put there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import gymnasium as gym
import numpy as np

from redline.errors import RedlineError
from redline.worlds.encoding import Encoding, require_form

Arrays = Mapping[str, np.ndarray]
LARGEST = 1e15
"""No weight and no moment of the optimiser comes near it."""
MOST_STEPS = 2**53


class Unfit(Exception):
    """Which array cannot be, and why."""


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Whatever goes wrong inside is told as one line about the checkpoint."""
    try:
        yield
    except RedlineError:
        raise
    except (Unfit, KeyError, IndexError, TypeError, ValueError, RuntimeError, OverflowError, MemoryError) as error:
        text = f"it has no {error}" if isinstance(error, KeyError) else str(error).strip().split("\n")[0]
        raise RedlineError(
            f"{what} cannot be gone on from: {text or type(error).__name__}. It belongs to another run, or is damaged; "
            "try an earlier checkpoint, or begin a new run."
        ) from error


def require_numbers(arrays: Arrays, what: str) -> None:
    """Refuse floats that are no numbers, or far beyond all that training comes to."""
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise Unfit(f"its {what}.{name} is of type {array.dtype}, not of floats")
        if not (np.abs(array) < LARGEST).all():
            raise Unfit(f"its {what}.{name} holds values that are no numbers, or beyond all bounds")


def require_like(arrays: Arrays, like: Arrays, what: str) -> None:
    """Refuse arrays of another shape or type than those of the same names that a run begins with."""
    for name, array in like.items():
        given = arrays[name]
        if given.shape != array.shape or given.dtype != array.dtype:
            raise Unfit(
                f"its {what}.{name} is {given.dtype} {list(given.shape)}, not {array.dtype} {list(array.shape)}"
            )


def require_steps(values: Mapping[str, object]) -> None:
    """Refuse counts that are none."""
    for name in ("step", "episodes", "number"):
        count = values[name]
        if type(count) is not int or not 0 <= count < MOST_STEPS:
            raise Unfit(f"its {name} is {count!r:.40}, not a count")


class Experience:
    """Checks of what was seen and done, for envs with these spaces."""

    def __init__(self, encoding: Encoding, action_space: gym.Space, num_outputs: int) -> None:
        self._encoding, self._space, self._outputs = encoding, action_space, num_outputs

    def require_seen(self, observations: np.ndarray, masks: np.ndarray | None) -> None:
        """Refuse observations that no env gives, and masks that are none."""
        require_form(self._encoding, observations)
        if masks is not None:
            if masks.dtype != np.bool_ or masks.ndim != 2 or len(masks) != len(observations):
                raise Unfit(f"its masks are {masks.dtype} {list(masks.shape)}, for {len(observations)} observations")
            num_actions = getattr(self._space, "n", None)
            if num_actions is not None and masks.shape[1] != num_actions:
                raise Unfit(f"its masks are of {masks.shape[1]} actions, not of {num_actions}")

    def require_actor(self, arrays: Arrays, begun: Arrays) -> None:
        """Refuse what an actor could not have kept, of one that has just begun with `begun`."""
        require_like(arrays, {name: begun[name] for name in ("streams", "memories") if name in begun}, "actor")
        if "memories" in arrays:
            require_like(arrays, {"memories": begun["memories"]}, "actor")
            require_numbers({"memories": arrays["memories"]}, "actor")
        if "known" in arrays:
            self.require_seen(arrays["known"], arrays.get("known_masks"))

    def require_done(self, actions: np.ndarray, shape: tuple[int, ...]) -> None:
        """Refuse actions [*shape, …] that cannot be chosen, counted from 0."""
        space = self._space
        if actions.shape != (*shape, *(space.shape or ())):
            raise Unfit(f"its actions are of shape {list(actions.shape)}, not {list(shape)}")
        if isinstance(space, gym.spaces.Discrete):
            require_like({"actions": actions}, {"actions": np.zeros(actions.shape, space.dtype)}, "experience")
            if (actions < -1).any() or (actions >= space.n).any():
                raise Unfit("its actions are beyond those that there are")
        elif isinstance(space, gym.spaces.MultiDiscrete):
            require_like({"actions": actions}, {"actions": np.zeros(actions.shape, space.dtype)}, "experience")
            if (actions < -1).any() or (actions >= space.nvec).any():
                raise Unfit("its actions are beyond those that there are")
        elif actions.dtype.kind == "f":
            require_numbers({"actions": actions}, "experience")

    def require_episode(self, arrays: Arrays, prefix: str, length: int | None = None) -> None:
        """Refuse an episode whose parts do not belong together."""
        actions = arrays[f"{prefix}.actions"]
        count = len(actions) if length is None else length
        self.require_done(actions, (count,))
        observations, rewards = arrays[f"{prefix}.observations"], arrays[f"{prefix}.rewards"]
        self.require_seen(observations, arrays.get(f"{prefix}.masks"))
        require_numbers({"rewards": rewards}, prefix)
        if len(observations) != count or rewards.shape != (count,) or not count:
            raise Unfit(f"its {prefix} is of {len(observations)} observations, {len(rewards)} rewards, {count} actions")

    def require_elite(self, arrays: Arrays, num_envs: int) -> None:
        """Refuse episodes to imitate that could not have been played."""
        k = 0
        while f"{k}.actions" in arrays:
            self.require_episode(arrays, str(k))
            k += 1
        if "totals" not in arrays:
            return
        lengths = arrays["lengths"]
        require_like(arrays, {"totals": np.zeros(num_envs), "lengths": np.zeros(num_envs, np.int64)}, "elite")
        require_numbers({"totals": arrays["totals"]}, "elite")
        known = int(np.maximum(lengths, 0).sum()) if (lengths < MOST_STEPS).all() else MOST_STEPS
        if lengths.min() < -1 or known != len(arrays.get("open.actions", ())):
            raise Unfit("its elite.lengths do not fit the episodes under way")
        if known:
            self.require_episode(arrays, "open", known)

    def require_rollout(self, arrays: Arrays, prefix: str) -> None:
        """Refuse an earlier rollout whose rows lead nowhere."""
        shape, observations = arrays["rows"].shape, arrays["observations"]
        if len(shape) != 2:
            raise Unfit(f"its {prefix}.rows are of shape {list(shape)}")
        _require_whole(arrays["rows"])
        self.require_seen(observations, arrays.get("masks"))
        if (arrays["rows"] < 0).any() or (arrays["rows"] >= len(observations)).any():
            raise Unfit(f"its {prefix}.rows lead to no observation")
        self.require_done(arrays["actions"], shape)
        floats, flags = ("log_probs", "values", "next_values", "rewards"), ("terminated", "truncated")
        like = {name: np.zeros(shape, np.float32) for name in floats} | {
            name: np.zeros(shape, np.bool_) for name in flags
        }
        held = {"held": np.zeros(shape, np.bool_)} if "held" in arrays else {}
        require_like(arrays, {**like, **held, "version": np.zeros(shape[1], np.int64)}, prefix)
        require_numbers({name: arrays[name] for name in floats}, prefix)


def _require_whole(array: np.ndarray) -> None:
    if array.dtype.kind not in "iu":
        raise Unfit(f"its actions or rows are of type {array.dtype}, not whole numbers")
