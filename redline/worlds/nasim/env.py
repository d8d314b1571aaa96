"""Penetration tests as Gymnasium envs: `NasimVectorEnv` plays many episodes at once, `NasimEnv` one."""

from __future__ import annotations

from typing import Any

import numpy as np

from redline.compiled.announce import announce_compilation
from redline.compiled.speed import at_speed
from redline.worlds.batch import BatchEnv, Infos, SingleEnv, any_seed
from redline.worlds.nasim.instances import find_network
from redline.worlds.nasim.options import NetworkOptions
from redline.worlds.nasim.rules import kernel
from redline.worlds.nasim.rules.observe import AttackWords
from redline.worlds.nasim.rules.scenario import AttackScenario
from redline.worlds.nasim.rules.state import ENDED, new_ended, new_state
from redline.worlds.nasim.rules.tables import FLAGS, action_names, value_bounds
from redline.worlds.play_on import Playing
from redline.worlds.results import StepResults
from redline.worlds.world import Named

LONGEST = 1 << 62
"""More steps than any episode has."""


class NasimVectorEnv(BatchEnv):
    """Many penetration tests of one network, stepped together by one compiled kernel.

    An episode terminates when all sensitive hosts are held as root, and is truncated at the network's step limit.
    `infos["episode_metrics"]["won"]` tells which of both.
    """

    def __init__(
        self,
        num_envs: int,
        name: str | AttackScenario = "medium",
        *,
        turbo: bool = True,
        encoded: bool = False,
        autoreset: bool = True,
        **options: Any,
    ) -> None:
        settings = NetworkOptions(**options)
        self.network = name if isinstance(name, AttackScenario) else find_network(name, settings)
        self.fully_obs = settings.fully_obs
        words = AttackWords(self.network, self.fully_obs, turbo)
        super().__init__(num_envs, self.network.num_actions, words, encoded=encoded, autoreset=autoreset)
        self.action_names = tuple(action_names(self.network))
        self._tables = words.tables
        self._step, self._reset = at_speed(kernel.step, turbo), at_speed(kernel.reset, turbo)
        self.state = new_state(num_envs, self._tables.access_words, any_seed())
        self._ended = new_ended(num_envs)
        announce_compilation(self._step, "NASim kernel", 5)
        if turbo and autoreset:
            world = kernel.Attack(self._tables, self.state, self.obs, self.final_obs, self._ended)
            self.playing = Playing(kernel.play_on, world, self.obs, ENDED, told_metrics)

    @property
    def streams(self) -> np.ndarray:
        """The random streams of the envs."""
        return self.state.envs.rng

    def begin(self, first: int, last: int) -> None:
        """Begin an episode in envs `first` up to `last`."""
        self._reset(self._tables, self.state, first, last, self.obs)

    def play(self, first: int, last: int, actions: np.ndarray, results: StepResults) -> None:
        """Play one action in envs `first` up to `last`."""
        self._step(
            self._tables, self.state, first, last, actions, self.autoreset, self.obs,
            *results, self.final_obs, self._ended,
        )  # fmt: skip

    def ended_infos(self, ended: np.ndarray) -> Infos:
        """Return and length of the ended episodes, and whether they were won."""
        told = self._ended
        return {
            "episode": {"r": np.where(ended, told.score, 0.0), "l": np.where(ended, told.length, 0)},
            "episode_metrics": {"won": np.where(ended, told.won, 0.0)},
        }

    def state_arrays(self) -> dict[str, np.ndarray]:
        """A record and the words of access per env."""
        return {"envs": self.state.envs, "access": self.state.access}

    def results(self) -> dict[str, np.ndarray]:
        """How the latest action of each env ended: the original's flags bool [N], and the value float32 [N] it gained."""
        flags = {name: (self.state.envs.result >> k & 1).astype(np.bool_) for k, name in enumerate(FLAGS)}
        return {**flags, "value": self.state.envs.gain.copy()}

    def single_info(self, infos: Infos) -> Infos:
        """The flags of the latest action, where there was one."""
        if self.state.envs.clock[0] == 0:
            return {}
        return {name: value[0].item() for name, value in self.results().items()}

    def observation_range(self) -> tuple[float, float]:
        """As the original declares it."""
        return value_bounds(self.network)


def told_metrics(told: np.ndarray) -> dict[str, np.ndarray]:
    """Whether episodes that ended were won."""
    return {"won": told["won"].astype(np.float64)}


class NasimEnv(SingleEnv):
    """One penetration test at a time. `info` tells how the latest action ended."""

    batch: NasimVectorEnv
    show = Named("redline.worlds.nasim.play:PLAY")

    def __init__(
        self, name: str | AttackScenario = "medium", *, render_mode: str | None = None, **options: Any
    ) -> None:
        super().__init__(NasimVectorEnv(1, name, autoreset=False, **options), render_mode)


def make_batch(num_envs: int, name: str, **options: Any) -> NasimVectorEnv:
    """Many envs, as the world makes them."""
    return NasimVectorEnv(num_envs, name, **options)


def make_single(name: str, **options: Any) -> NasimEnv:
    """One env, as the world makes it."""
    return NasimEnv(name, **options)
