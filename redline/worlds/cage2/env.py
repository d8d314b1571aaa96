"""CAGE-2 as Gymnasium envs: `Cage2VectorEnv` plays many episodes at once, `Cage2Env` one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from redline.compiled.announce import announce_compilation
from redline.compiled.speed import at_speed
from redline.worlds.batch import BatchEnv, Infos, SingleEnv, any_seed
from redline.worlds.cage2.recordings import access, host_bits
from redline.worlds.cage2.rules import kernel
from redline.worlds.cage2.rules.observe import encoding_of
from redline.worlds.cage2.rules.scenario import ACTIONS, Scenario, action_names
from redline.worlds.cage2.rules.state import new_state
from redline.worlds.play_on import Playing
from redline.worlds.results import StepResults
from redline.worlds.world import Named

NO_FIX_COMPLIANCE = 0.5  # of an episode in which nothing was fixed
EXPANDED_BY = {"reduced": kernel.expand_actions, "useful": kernel.expand_useful}


@dataclass(frozen=True)
class TrueState:
    """The truth that Blue cannot see, for all envs: a copy, made only when asked for."""

    access: np.ndarray  # int8 [N, 13]  Red's access: 0 none, 1 user, 2 root
    malware: np.ndarray  # int8 [N, 13]  1 where Analyse would find something
    decoys: np.ndarray  # int16 [N, 13]  bit per decoy
    ot_service: np.ndarray  # int8 [N]  0 running, 1 stopped, 2 running and unstoppable
    red_agent: np.ndarray  # int8 [N]  index into RED_AGENTS
    red_action: np.ndarray  # int8 [N, 3]  kind, target, success of Red's latest action
    clock: np.ndarray  # int32 [N]  steps since reset


class Cage2VectorEnv(BatchEnv):
    """Many CAGE-2 episodes stepped together by one compiled kernel; each is truncated after `max_steps`."""

    def __init__(
        self,
        num_envs: int,
        scenario: Scenario | None = None,
        *,
        turbo: bool = True,
        encoded: bool = False,
        autoreset: bool = True,
        **options: Any,
    ) -> None:
        self.scenario = dataclasses.replace(scenario or Scenario(), **options)
        super().__init__(
            num_envs, self.scenario.num_actions, encoding_of(self.scenario), encoded=encoded, autoreset=autoreset
        )
        self.action_names = action_names(self.scenario.actions)
        # an env that does not begin again by itself plays on in the kernel, which never sees its end
        endless = self.scenario if autoreset else dataclasses.replace(self.scenario, max_steps=0)
        self._settings = endless.settings()
        self._step, self._reset = at_speed(kernel.step, turbo), at_speed(kernel.reset, turbo)
        self._settle = at_speed(kernel.settle, turbo)
        expand = EXPANDED_BY.get(self.scenario.actions)
        self._expand = None if expand is None else at_speed(expand, turbo)
        self.state = new_state(num_envs, any_seed())
        self._final_lost = np.zeros(num_envs, np.int32)
        self._expanded = np.zeros(num_envs, np.int64)
        announce_compilation(self._step, "CAGE-2 kernel", 8)
        if turbo and autoreset:
            choice = list(ACTIONS).index(self.scenario.actions)
            world = kernel.Defence(self.state, self._settings, choice, self.obs, self.final_obs, self._final_lost)
            self.playing = Playing(kernel.play_on, world, self.obs, kernel.TOLD, self._told)

    @property
    def streams(self) -> np.ndarray:
        """The random streams of the envs."""
        return self.state.rng

    def begin(self, first: int, last: int) -> None:
        """Begin an episode in envs `first` up to `last`."""
        self._reset(self.state, first, last, self._settings, self.obs)

    def play(self, first: int, last: int, actions: np.ndarray, results: StepResults) -> None:
        """Play one step in envs `first` up to `last`."""
        if self._expand is not None:
            self._expand(self.state, first, last, actions, self._expanded)
            actions = self._expanded
        self._step(
            self.state, first, last, actions, self._settings,
            self.obs, results.rewards, results.truncated, self.final_obs, self._final_lost,
        )  # fmt: skip
        results.terminated[first:last] = False
        if not self.autoreset:
            results.truncated[first:last] = self.state.clock[first:last] == self.scenario.max_steps
            self._settle(self.state, first, last, self._settings, results.truncated, results.rewards)

    def ended_infos(self, ended: np.ndarray) -> Infos:
        """Return and length of the ended episodes; with a workflow, how they obeyed it."""
        lost = self._final_lost if self.autoreset else self.state.lost
        returns = np.where(ended, lost / -10.0, 0.0)
        lengths = np.where(ended, self.scenario.max_steps, 0)
        if not self.scenario.workflow:
            return {"episode": {"r": returns, "l": lengths}}
        state = self.state
        account = _account(returns, state.last_aligned, state.last_fixes, state.last_complied)
        account = {name: np.where(ended, values, 0) for name, values in account.items()}
        return {"episode": {"r": returns + account["alignment"], "l": lengths}, "episode_metrics": account}

    def _told(self, told: np.ndarray) -> dict[str, np.ndarray]:
        """The account of episodes that ended."""
        if not self.scenario.workflow:
            return {}
        return _account(told["lost"] / -10.0, told["aligned"], told["fixes"], told["complied"])

    def state_arrays(self) -> dict[str, np.ndarray]:
        """One record per env."""
        return {"records": self.state}

    def true_state(self) -> TrueState:
        """Red's hold on every host, decoys, the OT service: what the rules know and Blue does not."""
        state = self.state
        return TrueState(
            access=access(state),
            malware=host_bits(state.malware),
            decoys=state.decoys.copy(),
            ot_service=state.ot.copy(),
            red_agent=state.red_agent.copy(),
            red_action=np.stack([state.red_kind, state.red_target, state.red_success], axis=1),
            clock=state.clock.copy(),
        )


def _account(
    returns: np.ndarray, aligned: np.ndarray, fixes: np.ndarray, complied: np.ndarray
) -> dict[str, np.ndarray]:
    """How episodes obeyed the workflow: the environment's own reward apart from what obedience paid."""
    compliance = np.where(fixes > 0, complied / np.maximum(fixes, 1), NO_FIX_COMPLIANCE)
    return {"env_return": returns, "alignment": aligned, "compliance": compliance, "fixes": fixes}


class Cage2Env(SingleEnv):
    """One CAGE-2 episode at a time."""

    batch: Cage2VectorEnv
    show = Named("redline.worlds.cage2.play:PLAY")

    def __init__(
        self,
        scenario: Scenario | None = None,
        *,
        turbo: bool = True,
        encoded: bool = False,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        batch = Cage2VectorEnv(1, scenario, turbo=turbo, encoded=encoded, autoreset=False, **options)
        super().__init__(batch, render_mode)

    def true_state(self) -> TrueState:
        """The truth that Blue cannot see; arrays have a leading axis of one env."""
        return self.batch.true_state()


def make_batch(num_envs: int, name: str, **options: Any) -> Cage2VectorEnv:
    """Many envs, as the world makes them."""
    return Cage2VectorEnv(num_envs, **options)


def make_single(name: str, **options: Any) -> Cage2Env:
    """One env, as the world makes it."""
    return Cage2Env(**options)
