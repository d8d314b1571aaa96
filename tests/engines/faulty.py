"""An env that fails on command, in every way that envs do.

It learns who it is from the seed of its first reset, and shows it: an observation is (who, episode, step), so that every
step of every life is a different one and a splice cannot go unnoticed. Finished episodes are noted in a file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

NUM_ACTIONS = 3
MOST_SEEDS = 1_000_003  # that an observation in float32 tells apart


class Unpicklable:
    """Cannot be sent to another process."""

    def __reduce__(self) -> Any:
        raise TypeError("this cannot leave its process")


class Unreadable:
    """Can be sent to another process, but not received there."""

    def __reduce__(self) -> Any:
        return int, ("what?",)


def explode() -> None:
    """An error with a place of its own in the traceback."""
    raise ValueError("the simulator exploded")


def hold_the_interpreter() -> None:
    """A call into C that never lets another thread run."""
    ctypes.PyDLL(None).sleep(1000)


class Wordless(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise ZeroDivisionError


class Stubborn:
    """Does not let itself be looked at."""

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise RuntimeError("not now")


def _raise(error: Exception) -> None:
    raise error


DEEDS: dict[str, Callable[[], object]] = {
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(3),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "raise": explode,
    "sys.exit": sys.exit,
    "wordless": lambda: _raise(Wordless()),
    "sleep": lambda: time.sleep(1000),
    "hold": hold_the_interpreter,
}

Answer = tuple[Any, ...]
LIES: dict[str, Callable[[Any, float, bool, bool, dict], Any]] = {
    "nan obs": lambda obs, *rest: (np.where([0, 1, 0], np.nan, obs).astype(np.float32), *rest),
    "inf obs": lambda obs, *rest: (np.where([0, 0, 1], np.inf, obs).astype(np.float32), *rest),
    "long obs": lambda obs, *rest: (np.append(obs, obs[:1]), *rest),
    "scalar obs": lambda obs, *rest: (1.0, *rest),
    "no obs": lambda obs, *rest: (None, *rest),
    "ragged obs": lambda obs, *rest: ([[1.0], [1.0, 2.0]], *rest),
    "double obs": lambda obs, *rest: (np.full(3, 1e300), *rest),
    "object obs": lambda obs, *rest: (np.array(["a", None, 2.0], object), *rest),
    "stubborn obs": lambda obs, *rest: (Stubborn(), *rest),
    "nan reward": lambda obs, reward, *rest: (obs, float("nan"), *rest),
    "inf reward": lambda obs, reward, *rest: (obs, np.float32("inf"), *rest),
    "huge reward": lambda obs, reward, *rest: (obs, 1e300, *rest),
    "endless reward": lambda obs, reward, *rest: (obs, 10**400, *rest),
    "no reward": lambda obs, reward, *rest: (obs, None, *rest),
    "word reward": lambda obs, reward, *rest: (obs, "much", *rest),
    "array reward": lambda obs, reward, *rest: (obs, np.ones(2), *rest),
    "no flag": lambda obs, reward, terminated, *rest: (obs, reward, None, *rest),
    "four values": lambda obs, reward, terminated, truncated, info: (obs, reward, terminated, info),
    "nothing": lambda *answer: None,
    "no info": lambda obs, reward, terminated, truncated, info: (obs, reward, terminated, truncated, None),
    "unpicklable info": lambda *answer: (*answer[:4], {"thing": Unpicklable()}),
    "unreadable info": lambda *answer: (*answer[:4], {"thing": Unreadable()}),
}


class Frail(gym.Env[np.ndarray, int]):
    """Does `fault` in its `place` (make, reset, step or close) if it is one of `seeds`, at step `step` of its life.

    After `times` of it in all lives together it behaves, and in `make`, where nobody knows who he is, the first `skip`
    are spared. What it does `then`, it does once, in the first reset of its next life.
    """

    observation_space = gym.spaces.Box(0, np.inf, (3,), np.float32)
    action_space = gym.spaces.Discrete(NUM_ACTIONS)

    def __init__(
        self,
        folder: str,
        fault: str = "",
        place: str = "step",
        seeds: tuple[int, ...] = (),
        step: int = 5,
        times: int = 1,
        skip: int = 0,
        then: str = "",
        infos: bool = False,
    ) -> None:
        self._folder, self._fault, self._place = Path(folder), fault, place
        self._seeds, self._step, self._times, self._skip, self._infos = seeds, step, times, skip, infos
        self._then = then
        self._who, self._episode, self._clock, self._age = -1, -1, 0, 0
        if place == "make" and self._count("made") >= skip:
            self._strike()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if seed is not None:
            self._who, self._episode = seed, -1
        self._episode, self._clock, self._return = self._episode + 1, 0, 0.0
        self._length = 3 + zlib.crc32(f"{self._who} {self._episode}".encode()) % 5
        if self._then and seed in self._seeds[1:] and self._count("then") == 0:
            DEEDS[self._then]()
        if self._place == "reset" and self._who in self._seeds and self._age >= self._step:
            if self._fault not in LIES:
                self._strike()
            elif self._claim():
                return LIES[self._fault](self._seen(), 0.0, False, False, {})[0], {}
        return self._seen(), {"began": self._episode} if self._infos else {}

    def step(self, action: int) -> Any:
        strikes = self._place == "step" and self._who in self._seeds and self._age >= self._step
        if strikes and self._fault in DEEDS:
            self._strike()
        self._age += 1
        self._clock += 1
        reward = float(self._clock * (1 + int(action)))
        self._return += reward
        over = self._clock >= self._length
        terminated = over and self._episode % 2 == 0
        answer = (
            self._seen(),
            reward,
            terminated,
            over and not terminated,
            {"clock": self._clock} if self._infos else {},
        )
        if strikes and self._fault in LIES and self._claim():
            return LIES[self._fault](*answer)
        if over:
            self._note(f"{self._who} {self._episode} {self._clock} {self._return}")
        return answer

    def close(self) -> None:
        if self._place == "close":
            self._strike()

    def _seen(self) -> np.ndarray:
        return np.array([self._who % MOST_SEEDS, self._episode, self._clock], np.float32)

    def _strike(self) -> None:
        if self._fault and self._claim():
            DEEDS[self._fault]()

    def _claim(self) -> bool:
        return self._count("struck") < self._times

    def _count(self, what: str) -> int:
        """How often this was called before, by whichever process."""
        number = 0
        while True:
            try:
                os.close(os.open(self._folder / f"{what}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                number += 1
            else:
                return number

    def _note(self, line: str) -> None:
        file = os.open(self._folder / "episodes", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(file, f"{line}\n".encode())
        os.close(file)


class VastEnv(gym.Env[np.ndarray, int]):
    """Sees more than there is room for."""

    observation_space = gym.spaces.MultiBinary(10**12)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        return np.broadcast_to(np.int8(0), (10**12,)), {}

    def step(self, action: int) -> Any:
        raise NotImplementedError


class Shifted(Frail):
    """Its actions are 5, 6 and 7; the reward is the action."""

    action_space = gym.spaces.Discrete(NUM_ACTIONS, start=5)

    def step(self, action: int) -> Any:
        obs, _, *rest = super().step(action)
        return obs, float(action), *rest
