"""Timed nets as Gymnasium envs: `PetriVectorEnv` plays many episodes at once, `PetriEnv` one."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from redline.envs.batch import checked_actions, reset_mask, streams
from redline.errors import RedlineError, unknown
from redline.sims.petri import kernel
from redline.sims.petri.instances import PREFIX, Instance, list_petri, parse_petri
from redline.sims.petri.net import Net
from redline.sims.petri.state import DONE, OUTCOMES, new_finals, new_state
from redline.sims.petri.tables import arc_list, tabulate
from redline.sims.speed import at_speed, is_cached, is_compiled

__all__ = ["ILLEGAL", "PREFIX", "Instance", "PetriEnv", "PetriVectorEnv", "list_petri", "parse_petri"]

ILLEGAL = ("refuse", "ignore")
_PARTS = ("envs", "tokens", "places", "resources", "firings", "queues")


class PetriVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many episodes of a timed net stepped together by one compiled kernel.

    `infos["action_mask"]` bool [N, actions] says what is legal next. An episode that ends begins again in the same
    step; `infos["final_obs"]` holds its last observation, `infos["episode"]` its return and length, and
    `infos["episode_metrics"]` how it ended and when. An illegal action is refused, or changes nothing if ignored.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(
        self,
        num_envs: int,
        name: str | Net = "cluster/J-0",
        *,
        turbo: bool = True,
        illegal: str = "refuse",
        log_size: int = 0,
        autoreset: bool = True,
        **options: Any,
    ) -> None:
        if num_envs < 1:
            raise RedlineError(f"{num_envs} envs cannot be stepped. Try --num-envs 512.")
        if illegal not in ILLEGAL:
            raise unknown("answer to illegal actions", illegal, ILLEGAL)
        self.instance = None if isinstance(name, Net) else parse_petri(name, **options)
        self.net = name if isinstance(name, Net) else self.instance.net  # type: ignore[union-attr]
        self.num_envs, self.illegal, self.autoreset = num_envs, illegal, autoreset
        self._tables, self._sizes = tabulate(self.net)
        self.arcs = arc_list(self.net)  # int32 [E, 3]  transition, place, weight (negative if it is taken)
        self.single_action_space = gym.spaces.Discrete(self._sizes.actions)
        self.single_observation_space = gym.spaces.Box(0.0, 1.0, (self._sizes.observation,), np.float32)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._step, self._reset = at_speed(kernel.step, turbo), at_speed(kernel.reset, turbo)
        self._allocate(num_envs, int(np.random.SeedSequence().generate_state(1, np.uint64)[0]), log_size)
        announce_compilation(self._step)

    def _allocate(self, num_envs: int, seed: int, log_size: int) -> None:
        self.state = new_state(num_envs, self._sizes, seed, log_size)
        self._finals = new_finals(num_envs, self._sizes)
        self._obs = np.zeros((num_envs, self._sizes.observation), np.float32)
        self._final_obs = np.zeros_like(self._obs)
        self._mask = np.zeros((num_envs, self._sizes.actions), np.bool_)
        self._begun = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes, in all envs or in those of `options["reset_mask"]`. A net itself draws nothing."""
        chosen = reset_mask(options, self.num_envs)
        if seed is not None:
            self.state.envs.rng[chosen] = streams(seed, self.state.envs.rng)[chosen]
        if chosen.all():
            self._reset(self._tables, self.state, 0, self.num_envs, self._obs, self._mask, True)
            self._begun = True
        else:
            for i in np.flatnonzero(chosen):
                self._reset(self._tables, self.state, int(i), int(i) + 1, self._obs, self._mask, True)
        return self._obs.copy(), {"action_mask": self._mask.copy()}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one action in every env."""
        if not self._begun:
            raise RedlineError("There is no episode to play a step of. Call reset first.")
        actions = self._checked(actions)
        rewards = np.empty(self.num_envs)
        terminated, truncated = np.empty(self.num_envs, np.bool_), np.empty(self.num_envs, np.bool_)
        self._step(
            self._tables, self.state, 0, self.num_envs, actions, self._obs, self._mask,
            rewards, terminated, truncated, self.autoreset, self._final_obs, self._finals,
        )  # fmt: skip
        infos: dict[str, Any] = {"action_mask": self._mask.copy()}
        ended = terminated | truncated
        if ended.any():
            infos |= self._final_infos(ended)
        return self._obs.copy(), rewards, terminated, truncated, infos

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        actions = checked_actions(actions, self.num_envs, self._sizes.actions)
        if self.illegal == "refuse":
            legal = self._mask[np.arange(self.num_envs), actions]
            if not legal.all():
                raise RedlineError(self._complaint(int(np.flatnonzero(~legal)[0]), actions))
        return actions

    def _complaint(self, i: int, actions: np.ndarray) -> str:
        names = self.net.actions
        legal = ", ".join(f"{a} ({names[a]})" for a in np.flatnonzero(self._mask[i])[:5])
        given = f"{actions[i]} ({names[actions[i]]})"
        return f"Env {i} does not allow action {given} now: choose by infos['action_mask'], e.g. {legal}."

    def _final_infos(self, ended: np.ndarray) -> dict[str, Any]:
        finals = self._finals
        outcome, clock, finished, steps, margin_min, margin_sum, margins, _, gone = finals.counts.T
        metrics = {
            "completed": outcome == DONE,
            "end_time": clock,
            "finished": finished,
            "outcome": outcome,
            "margin_min": margin_min,
            "margin_mean": margin_sum / np.maximum(margins, 1),
        }
        if self.net.rules.scrap_place is not None:
            metrics["scrapped"] = gone
        return {
            "final_obs": self._final_obs.copy() if self.autoreset else self._obs.copy(),
            "_final_obs": ended.copy(),
            "episode": {"r": np.where(ended, finals.score, 0.0), "l": np.where(ended, steps, 0)},
            "_episode": ended.copy(),
            "episode_metrics": {key: np.where(ended, value, 0).astype(np.float64) for key, value in metrics.items()},
            "resource_seconds": np.where(ended[:, None], finals.resource_seconds, 0),
            "place_seconds": np.where(ended[:, None], finals.place_seconds, 0),
        }

    def action_masks(self) -> np.ndarray:
        """What is legal now, bool [N, actions]."""
        return self._mask.copy()

    def marking(self) -> np.ndarray:
        """Tokens in each place, int32 [N, places]."""
        return self.state.places.marking.copy()

    def clocks(self) -> np.ndarray:
        """Time since reset, int32 [N]."""
        return self.state.envs.clock.copy()

    def firings(self, i: int) -> np.ndarray:
        """Start, end, transition and token of each firing of env `i` since reset, as far as `log_size` reaches."""
        return self.state.log[i, : min(int(self.state.envs.fired[i]), self.state.log.shape[1])].copy()

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        parts = {part: _bytes(getattr(self.state, part)).copy() for part in _PARTS}
        return {**parts, "obs": self._obs.copy(), "action_mask": self._mask.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Go on from a snapshot of an env with the same net and size; returns the observation it stopped at."""
        mine = self.snapshot()
        for part, array in mine.items():
            if part not in snapshot or snapshot[part].shape != array.shape:
                raise RedlineError(
                    f"A snapshot of {len(snapshot.get('obs', ()))} envs of another net or size cannot go on in "
                    f"{self.num_envs} envs of {self.net.name}. Make the env as it was made then."
                )
        for part in _PARTS:
            _bytes(getattr(self.state, part))[:] = snapshot[part]
        self._obs[:], self._mask[:] = snapshot["obs"], snapshot["action_mask"]
        self._begun = True
        return self._obs.copy()


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of an array over envs, uint8 [N, bytes]: a view."""
    plain = array.view(np.ndarray)
    width = plain.dtype.itemsize * int(np.prod(plain.shape[1:]))
    return plain.reshape(-1).view(np.uint8).reshape(len(plain), width) if width else np.zeros((len(plain), 0), np.uint8)


class PetriEnv(gym.Env[np.ndarray, np.integer]):
    """One episode at a time. `info["action_mask"]` bool [actions] says what is legal next."""

    metadata = {"render_modes": []}

    def __init__(
        self,
        name: str | Net = "cluster/J-0",
        *,
        turbo: bool = True,
        illegal: str = "refuse",
        log_size: int = 0,
        **options: Any,
    ) -> None:
        # the batch of one does not begin again by itself, so that the last state stays readable
        self.batch = PetriVectorEnv(
            1, name, turbo=turbo, illegal=illegal, log_size=log_size, autoreset=False, **options
        )
        self.net, self.arcs = self.batch.net, self.batch.arcs
        self.action_space = self.batch.single_action_space
        self.observation_space = self.batch.single_observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin a new episode."""
        super().reset(seed=seed)
        obs, infos = self.batch.reset(seed=seed, options=options)
        return obs[0], {"action_mask": infos["action_mask"][0]}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Play one action."""
        obs, rewards, terminated, truncated, infos = self.batch.step(np.array([action]))
        info: dict[str, Any] = {"action_mask": infos["action_mask"][0]}
        if terminated[0] or truncated[0]:
            info |= {key: float(value[0]) for key, value in infos["episode_metrics"].items()}
            info["outcome"] = OUTCOMES[int(info["outcome"])]
            info["episode"] = {key: value[0] for key, value in infos["episode"].items()}
        return obs[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info

    def action_masks(self) -> np.ndarray:
        """What is legal now, bool [actions]."""
        return self.batch.action_masks()[0]

    def firings(self) -> np.ndarray:
        """Start, end, transition and token of each firing since reset, as far as `log_size` reaches."""
        return self.batch.firings(0)


def announce_compilation(step: Any) -> None:
    """Say so when the first call of the kernel is going to take a while."""
    if not is_compiled(step) and not is_cached(step):
        print("Compiling the Petri net kernel (once on this machine, about 20 seconds) …", file=sys.stderr, flush=True)
