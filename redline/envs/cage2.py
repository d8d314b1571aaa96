"""CAGE-2 as Gymnasium envs: `Cage2VectorEnv` plays many episodes at once, `Cage2Env` one."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from redline.errors import RedlineError
from redline.sims.cage2 import kernel
from redline.sims.cage2.observe import Layout
from redline.sims.cage2.replay import access, host_bits
from redline.sims.cage2.scenario import Scenario
from redline.sims.cage2.state import new_state
from redline.sims.rng import seed_streams
from redline.sims.speed import at_speed, is_cached, is_compiled

NO_FIX_COMPLIANCE = 0.5  # of an episode in which nothing was fixed


@dataclass(frozen=True)
class TrueState:
    """What Blue cannot see, for all envs: a copy, made only when asked for."""

    access: np.ndarray  # int8 [N, 13]  Red's access: 0 none, 1 user, 2 root
    malware: np.ndarray  # int8 [N, 13]  1 where Analyse would find something
    decoys: np.ndarray  # int16 [N, 13]  bit per decoy
    ot_service: np.ndarray  # int8 [N]  0 running, 1 stopped, 2 running and unstoppable
    red_agent: np.ndarray  # int8 [N]  index into RED_AGENTS
    red_action: np.ndarray  # int8 [N, 3]  kind, target, success of Red's latest action
    clock: np.ndarray  # int32 [N]  steps since reset


class Cage2VectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many CAGE-2 episodes stepped together by one compiled kernel.

    An episode that reaches `max_steps` is truncated and begins again in the same step; `infos["final_obs"]` holds its
    last observation and `infos["episode"]` its return and length. With `packed=True` observations are int64 words, one
    for the plain table, that `unpack` turns into values.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(
        self,
        num_envs: int,
        scenario: Scenario | None = None,
        *,
        turbo: bool = True,
        packed: bool = False,
        **options: Any,
    ) -> None:
        if num_envs < 1:
            raise RedlineError(f"{num_envs} envs cannot be stepped. Try --num-envs 512.")
        self.scenario = dataclasses.replace(scenario or Scenario(), **options)
        self.num_envs = num_envs
        self.layout = Layout(self.scenario)
        self.packed = packed
        self.single_action_space = gym.spaces.Discrete(self.scenario.num_actions)
        self.single_observation_space = _observation_space(self.layout, packed)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._step, self._reset = at_speed(kernel.step, turbo), at_speed(kernel.reset, turbo)
        self._expand = at_speed(kernel.expand_actions, turbo) if self.scenario.actions == "reduced" else None
        self._settings = self.scenario.settings()
        self._allocate(num_envs, seed=int(np.random.SeedSequence().generate_state(1, np.uint64)[0]))
        announce_compilation(self._step)

    def _allocate(self, num_envs: int, seed: int) -> None:
        self.state = new_state(num_envs, seed)
        self._packed = np.zeros((num_envs, self.layout.num_words), np.int64)
        self._final_packed = np.zeros_like(self._packed)
        self._final_lost = np.zeros(num_envs, np.int32)
        self._actions = np.zeros(num_envs, np.int64)
        self._never = np.zeros(num_envs, np.bool_)
        self._begun = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes, in all envs or in those of `options["reset_mask"]`. Env `i` gets seed `seed + i`."""
        mask = self._reset_mask(options)
        if seed is not None:
            self.state.rng[mask] = self._streams(seed)[mask]
        if mask.all():
            self._reset(self.state, 0, self.num_envs, self._settings, self._packed)
            self._begun = True
        else:
            for i in np.flatnonzero(mask):
                self._reset(self.state, i, i + 1, self._settings, self._packed)
        return self._observation(self._packed), {}

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        """True bool [N] for the envs to reset."""
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, np.bool_)
        mask = np.asarray(options["reset_mask"])
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise RedlineError(
                f"A reset mask of shape {mask.shape} and type {mask.dtype} does not fit {self.num_envs} envs: "
                "pass one truth value per env."
            )
        return mask

    def _streams(self, seed: int | list[int | None]) -> np.ndarray:
        """Where the random streams uint64 [N] start; an env whose seed is None goes on with its own."""
        if isinstance(seed, int | np.integer):
            if seed < 0:
                raise RedlineError(f"A seed of {seed} cannot be used. Pass a whole number of at least 0.")
            return seed_streams(int(seed), self.num_envs)
        if len(seed) != self.num_envs:
            raise RedlineError(f"{len(seed)} seeds cannot be dealt to {self.num_envs} envs. Pass one number instead.")
        streams = self.state.rng.copy()
        for i, one in enumerate(seed):
            if one is not None:
                streams[i] = seed_streams(int(one), 1)[0]
        return streams

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one step in every env."""
        if not self._begun:
            raise RedlineError("There is no episode to play a step of. Call reset first.")
        actions = self._checked(actions)
        if self._expand is not None:
            self._expand(self.state, 0, self.num_envs, actions, self._actions)
            actions = self._actions
        rewards = np.empty(self.num_envs)
        ended = np.empty(self.num_envs, np.bool_)
        self._step(
            self.state, 0, self.num_envs, actions, self._settings,
            self._packed, rewards, ended, self._final_packed, self._final_lost,
        )  # fmt: skip
        infos = self._final_infos(ended) if ended.any() else {}
        return self._observation(self._packed), rewards, self._never.copy(), ended, infos

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise RedlineError(
                f"Actions of shape {actions.shape} and type {actions.dtype} do not fit {self.num_envs} envs: "
                "pass one whole number per env."
            )
        if actions.min() < 0 or actions.max() >= self.scenario.num_actions:
            raise RedlineError(
                f"Actions must be 0 to {self.scenario.num_actions - 1}; got {actions.min()} to {actions.max()}."
            )
        return actions.astype(np.int64, copy=False)

    def _final_infos(self, ended: np.ndarray) -> dict[str, Any]:
        returns = np.where(ended, self._final_lost / -10.0, 0.0)
        lengths = np.where(ended, self.scenario.max_steps, 0)
        infos: dict[str, Any] = {
            "final_obs": self._observation(self._final_packed),
            "_final_obs": ended.copy(),
            "episode": {"r": returns, "l": lengths},
            "_episode": ended.copy(),
        }
        if self.scenario.workflow:
            account = self._account(ended)
            infos["episode"]["r"] = account["env_return"] + account["alignment"]
            infos["episode_metrics"] = account
        return infos

    def _account(self, ended: np.ndarray) -> dict[str, np.ndarray]:
        """How the ended episodes obeyed the workflow: the environment's own reward apart from what obedience paid."""
        fixes, complied = self.state.last_fixes, self.state.last_complied
        compliance = np.where(fixes > 0, complied / np.maximum(fixes, 1), NO_FIX_COMPLIANCE)
        return {
            "env_return": np.where(ended, self._final_lost / -10.0, 0.0),
            "alignment": np.where(ended, self.state.last_aligned, 0.0),
            "compliance": np.where(ended, compliance, 0.0),
            "fixes": np.where(ended, fixes, 0),
        }

    def _observation(self, packed: np.ndarray) -> np.ndarray:
        return packed.copy() if self.packed else self.layout.unpack(packed)

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """Observation values int8 [n, size] of packed observations [n, words]."""
        return self.layout.unpack(packed)

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

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        records = np.ascontiguousarray(self.state).view(np.uint8).reshape(self.num_envs, -1)
        return {"records": records.copy(), "packed": self._packed.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Go on from a snapshot of an env with the same options and size; returns the observation it stopped at."""
        records, packed = snapshot["records"], snapshot["packed"]
        if records.shape != (self.num_envs, self.state.itemsize) or packed.shape != self._packed.shape:
            raise RedlineError(
                f"A snapshot of {len(records)} envs and observations of {packed.shape[-1]} words cannot go on in "
                f"{self.num_envs} envs with {self.layout.num_words} words. Make the env as it was made then."
            )
        self.state.view(np.uint8).reshape(self.num_envs, -1)[:] = records
        self._packed[:] = packed
        self._begun = True
        return self._observation(self._packed)


class Cage2Env(gym.Env[np.ndarray, np.integer]):
    """One CAGE-2 episode at a time. Seeded alike, it plays the same episode as any env of a `Cage2VectorEnv`."""

    metadata = {"render_modes": []}

    def __init__(
        self, scenario: Scenario | None = None, *, turbo: bool = True, packed: bool = False, **options: Any
    ) -> None:
        scenario = dataclasses.replace(scenario or Scenario(), **options)
        self.max_steps, self.packed = scenario.max_steps, packed
        # the batch of one never ends its episode by itself, so that the last observation stays readable
        self._batch = Cage2VectorEnv(1, dataclasses.replace(scenario, max_steps=0), turbo=turbo, packed=packed)
        self.unpack, self.layout = self._batch.unpack, self._batch.layout
        self.action_space = self._batch.single_action_space
        self.observation_space = self._batch.single_observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin a new episode."""
        super().reset(seed=seed)
        obs, info = self._batch.reset(seed=seed, options=options)
        return obs[0], info

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Play one step."""
        obs, rewards, _, _, info = self._batch.step(np.array([action]))
        return obs[0], float(rewards[0]), False, bool(self._batch.state.clock[0] == self.max_steps), info

    def true_state(self) -> TrueState:
        """What the rules know and Blue does not; arrays have a leading axis of one env."""
        return self._batch.true_state()


def _observation_space(layout: Layout, packed: bool) -> gym.spaces.Box:
    if packed:
        info = np.iinfo(np.int64)
        return gym.spaces.Box(info.min, info.max, (layout.num_words,), np.int64)
    return gym.spaces.Box(np.zeros(len(layout), np.int8), layout.high, dtype=np.int8)


def announce_compilation(step: Any) -> None:
    """Say so when the first call of the kernel is going to take a while."""
    if not is_compiled(step) and not is_cached(step):
        print("Compiling the CAGE-2 kernel (once on this machine, about 15 seconds) …", file=sys.stderr, flush=True)
