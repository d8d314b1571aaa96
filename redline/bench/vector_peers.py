"""How others step envs together: Gymnasium's vector envs and SB3's, as something our own engine can collect from.

Everybody gets the same envs and the same acting and recording around them, so that what is compared is the stepping.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from redline.engines.lockstep import Lockstep
from redline.engines.spec import EnvDescription, Spaces, Spec
from redline.errors import RedlineError, install
from redline.processes import end_with_parent, sigint_blocked
from redline.rollout import Acting, Rollout
from redline.timing.stopwatch import Stopwatch

FORK = "fork" if sys.platform == "linux" else None
"""How peers start their processes, one per env: the quickest way there is. How they step does not depend on it."""
CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class OneEnv:
    """Makes an env wherever it is called; a process it is called in ends with ours."""

    spec: Spec
    home: int = field(default_factory=os.getpid)

    def __call__(self) -> gym.Env:
        """The env."""
        if os.getpid() != self.home:
            end_with_parent()
        return self.spec.single()


def _sync(envs: list[OneEnv]) -> VectorEnv:
    return SyncVectorEnv(envs, autoreset_mode=AutoresetMode.SAME_STEP)


def _async_shared(envs: list[OneEnv]) -> VectorEnv:
    return AsyncVectorEnv(envs, shared_memory=True, context=FORK, autoreset_mode=AutoresetMode.SAME_STEP)


def _async_pipes(envs: list[OneEnv]) -> VectorEnv:
    return AsyncVectorEnv(envs, shared_memory=False, context=FORK, autoreset_mode=AutoresetMode.SAME_STEP)


def _subproc(envs: list[OneEnv]) -> VectorEnv:
    try:
        from stable_baselines3.common.vec_env import SubprocVecEnv
    except ImportError as error:
        raise RedlineError(f"Stable-Baselines3 is not installed. Try: {install('peers')}") from error
    return FromSb3(SubprocVecEnv(list(envs), start_method=FORK))


@dataclass(frozen=True)
class VectorPeer:
    """Somebody else's vector env."""

    make: Callable[[list[OneEnv]], VectorEnv]
    processes: bool = True  # one per env, or none


VECTOR_PEERS: dict[str, VectorPeer] = {
    "SyncVectorEnv": VectorPeer(_sync, processes=False),
    "AsyncVectorEnv": VectorPeer(_async_shared),
    "AsyncVectorEnv, pipes": VectorPeer(_async_pipes),
    "SubprocVecEnv": VectorPeer(_subproc),
}
"""Gymnasium's, AsyncVectorEnv with shared memory and without, and Stable-Baselines3's."""


class PeerEngine(Lockstep):
    """A peer's vector env under our own acting and recording; it says nothing about its workers."""

    def __init__(self, peer: VectorPeer, spec: Spec, num_envs: int, seed: int) -> None:
        self._older = set(multiprocessing.active_children())
        self._vector: VectorEnv | None = None
        self._settled = (
            False  # no answer is due; closing politely would wait for one, and for ever if it was read already
        )
        try:
            with sigint_blocked(), _unwarned():
                self._vector = peer.make([OneEnv(spec)] * num_envs)
            spaces = self._vector.single_observation_space, self._vector.single_action_space
            super().__init__(self._vector, seed, EnvDescription.of(spec, Spaces(*spaces, False)))
            self._settled = True
        except BaseException:
            self.close()
            raise
        self.num_workers = num_envs if peer.processes else 1

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env under fixed weights."""
        self._settled = False
        with _unwarned():
            rollout = super().collect(policy, num_steps, watch)
        self._settled = True
        return rollout

    def close(self) -> None:
        """Close the envs; processes that do not heed that are killed."""
        ours = set(multiprocessing.active_children()) - self._older
        patience = 0.0
        if self._vector is not None and self._settled and all(process.is_alive() for process in ours):
            with (
                _unwarned(),
                contextlib.suppress(Exception),
            ):  # what closing fails with is not what a peer is measured by
                self._vector.close()
                patience = CLOSE_SECONDS
        elif self._vector is not None:
            self._vector.closed = True
        until = time.monotonic() + patience
        for process in ours:
            process.join(max(0.0, until - time.monotonic()))
            process.kill()
            process.join(CLOSE_SECONDS)


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """Peers warn in many words before they fail; that they failed is told in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class FromSb3(VectorEnv):
    """SB3's vector env in Gymnasium's words."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(self, env: Any) -> None:
        self._env, self.num_envs = env, env.num_envs
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes; env `i` gets seed `seed + i`."""
        self._env.seed(seed)
        obs = self._env.reset()
        return obs, self._masks(self._env.reset_infos)

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        """Play one step in every env."""
        obs, rewards, ended, infos = self._env.step(actions)
        truncated, found = np.zeros(self.num_envs, np.bool_), self._masks(infos, ended)
        if ended.any():
            found["final_obs"] = np.zeros_like(obs)
            for i in np.flatnonzero(ended):
                truncated[i] = infos[i]["TimeLimit.truncated"]
                found["final_obs"][i] = infos[i]["terminal_observation"]
        return obs, rewards, ended & ~truncated, truncated, found

    def _masks(self, infos: Any, ended: np.ndarray | None = None) -> dict[str, Any]:
        if "action_mask" not in infos[0]:
            return {}
        begun = np.zeros(self.num_envs, np.bool_) if ended is None else ended
        now = [again if new else info for info, again, new in zip(infos, self._env.reset_infos, begun, strict=True)]
        return {"action_mask": np.stack([info["action_mask"] for info in now])}

    def close_extras(self, **kwargs: Any) -> None:
        """Close the envs."""
        self._env.close()
