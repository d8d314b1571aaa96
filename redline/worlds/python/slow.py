"""A Python env whose steps cost what you choose, to show and to test what an engine makes of slow envs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

import gymnasium as gym
import numpy as np

from redline.errors import RedlineError

CHEAPEST = 0.1  # cost of the cheapest steps, as a share of the mean
MOST_VALUES, MOST_ACTIONS = 1_000_000, 10_000
BLOCK = 1024  # steps drawn at once: one by one, the draws would cost more than the step


@dataclass(frozen=True)
class Slow:
    """Options of the `slow` env: what its steps cost and what they hold."""

    mean_ms: float = 2.5
    """Mean cost of a step in milliseconds."""
    max_ms: float = 0.0
    """Cost of the slowest steps: most are cheap, a few come close to this. 0 makes every step cost the mean."""
    wait: bool = False
    """Sleep through the cost, like an env that waits for another program (and wakes a little late). Else use a core."""
    reset_ms: float = 0.0
    """Cost of a reset in milliseconds."""
    max_steps: int = 100
    """Steps in an episode, which is then truncated. 0 never ends one."""
    size: int = 8
    """Length of an observation."""
    num_actions: int = 4
    """Actions to choose from."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played, saying what could."""
        if not 0 < self.mean_ms < math.inf:
            raise RedlineError(f"A step cannot cost {self.mean_ms} ms. Try --mean-ms 2.5.")
        if self.max_ms != 0 and not self.mean_ms <= self.max_ms < math.inf:
            raise RedlineError(
                f"Steps of at most {self.max_ms} ms cannot cost {self.mean_ms} ms on average. "
                f"Try --max-ms {20 * self.mean_ms:g}, or 0 to make all cost the same."
            )
        if not 0 <= self.reset_ms < math.inf:
            raise RedlineError(f"A reset cannot cost {self.reset_ms} ms. Try --reset-ms 0.")
        if self.max_steps < 0:
            raise RedlineError(f"An episode of {self.max_steps} steps cannot be played. Try --max-steps 100.")
        if not 1 <= self.size <= MOST_VALUES:
            raise RedlineError(
                f"An observation of {self.size} values cannot be shown: 1 to {MOST_VALUES}. Try --size 8."
            )
        if not 2 <= self.num_actions <= MOST_ACTIONS or self.num_actions * self.size > 100 * MOST_VALUES:
            raise RedlineError(
                f"{self.num_actions} actions cannot be chosen from: 2 to {MOST_ACTIONS}. Try --num-actions 4."
            )


def step_seconds(options: Slow, draws: np.ndarray) -> np.ndarray:
    """The cost of steps, from draws [n] uniform in [0, 1].

    A step costs `low + (max - low) * draw ** power`: never less than `low`, a tenth of the mean, and close to the
    maximum now and then. As the mean of `draw ** power` is `1 / (power + 1)`, there is one power that gives the mean
    asked for. A maximum of 20 means takes a power of 21: half of the steps then cost `low`, one in 30 over 10 means.
    """
    mean = options.mean_ms / 1e3
    if options.max_ms == 0:
        return np.full(len(draws), mean)
    low, high = CHEAPEST * mean, options.max_ms / 1e3
    power = (high - low) / (mean - low) - 1
    return low + (high - low) * draws**power


class SlowEnv(gym.Env[np.ndarray, np.integer]):
    """The observation shows which action is right; taking it is rewarded with 1, any other with 0.

    Seed and actions decide what happens and what it costs. The costs have a random stream of their own: envs that
    differ only in cost play the same episodes. The env's own bookkeeping is part of the cost, not added to it.
    """

    metadata = {"render_modes": []}

    def __init__(self, options: Slow | None = None, **changes: Any) -> None:
        self.options = dataclasses.replace(options or Slow(), **changes)
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (self.options.size,), np.float32)
        self.action_space = gym.spaces.Discrete(self.options.num_actions)
        self._num_actions, self._max_steps = self.options.num_actions, self.options.max_steps
        self._pictures = list(_pictures(self.options))
        self._right = -1  # the action that is right now; -1 before the first reset
        self._clock = 0  # steps since reset
        self._rights: list[int] = []  # to come, the next one last
        self._seconds: list[float] = []
        self._cost_stream: np.random.Generator | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin a new episode."""
        began = perf_counter()
        super().reset(seed=seed)
        if seed is not None or self._cost_stream is None:
            self._cost_stream = self.np_random.spawn(1)[0]  # spawning draws nothing from `np_random` itself
            self._rights.clear()
            self._seconds.clear()
        self._clock = 0
        self._right = self._next_right()
        self._spend(began, self.options.reset_ms / 1e3)
        return self._pictures[self._right].copy(), {}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Play one step, and take as long over it as it costs."""
        began = perf_counter()
        if self._right < 0:
            raise RedlineError("There is no episode to play a step of. Call reset first.")
        action = int(action)
        if not 0 <= action < self._num_actions:
            raise RedlineError(f"Actions must be 0 to {self._num_actions - 1}; got {action}.")
        reward = 1.0 if action == self._right else 0.0
        self._right = self._next_right()
        self._clock += 1
        obs = self._pictures[self._right].copy()
        self._spend(began, self._next_seconds())
        return obs, reward, False, self._clock == self._max_steps, {}

    def _next_right(self) -> int:
        if not self._rights:
            self._rights = self.np_random.integers(self._num_actions, size=BLOCK).tolist()
        return self._rights.pop()

    def _next_seconds(self) -> float:
        if not self._seconds:
            assert self._cost_stream is not None  # made by the reset that began the episode
            self._seconds = step_seconds(self.options, self._cost_stream.random(BLOCK)).tolist()
        return self._seconds.pop()

    def _spend(self, began: float, seconds: float) -> None:
        """Return when `seconds` have passed since `began`."""
        until = began + seconds
        if self.options.wait:
            sleep(max(0.0, until - perf_counter()))
            return
        while perf_counter() < until:
            pass


def _pictures(options: Slow) -> np.ndarray:
    """The observation of each right action, float32 [num_actions, size]: a saw tooth that begins at that action."""
    place = np.arange(options.num_actions)[:, None] + np.arange(options.size)
    return (1.0 - 2.0 * (place % options.num_actions) / (options.num_actions - 1)).astype(np.float32)


def make_slow(name: str, **options: Any) -> SlowEnv:
    """One env, as the world makes it."""
    return SlowEnv(**options)
