"""The envs of one process: stepped where they are, every answer checked before anyone else sees it.

`Singles` steps Python envs one after another, `Batch` steps a slice of our own simulators in one call. Both write into
the arrays of a slab, which may be shared memory.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from redline.engines.faults import EnvFailed, Failure
from redline.engines.memory import Shapes
from redline.envs import ENVS, is_simulator, make_env, make_single, require_known, with_query
from redline.errors import RedlineError

MAKE, RESET, STEP = 1, 2, 3
PHASES = {0: "", MAKE: "making it", RESET: "reset", STEP: "step"}
NO_ACTION = -(2**63)
MOST_REWARD = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Spec:
    """How to make an env, in any process."""

    name: str
    options: dict[str, Any]

    @classmethod
    def of(cls, name: str, options: dict[str, Any]) -> Spec:
        """The env of that name; our own simulators show their observations packed."""
        name, options = with_query(name, options)
        require_known(name)
        packed = {"packed": True} if name in ENVS and ENVS[name].batched else {}
        return cls(name, {**options, **packed})

    @property
    def native(self) -> bool:
        """Whether it is one of our simulators, whose batches are stepped by one call."""
        return is_simulator(self.name)

    def single(self) -> gym.Env:
        """One env."""
        return make_single(self.name, **self.options)

    def batch(self, num_envs: int) -> VectorEnv:
        """Envs that step together."""
        return make_env(self.name, num_envs, **self.options)


class Spaces(NamedTuple):
    """What envs see and do, and whether they say which actions are allowed."""

    observation: gym.Space
    action: gym.Space
    masked: bool

    def slab_shapes(self, num_envs: int) -> Shapes:
        """The arrays that envs write into and read actions from."""
        obs, action = self.observation, self.action
        if obs.shape is None or obs.dtype is None or action.shape is None or action.dtype is None:
            raise RedlineError(
                f"Observations {obs} with actions {action} do not fit into arrays. "
                "Flatten them: gymnasium.wrappers.FlattenObservation(env)."
            )
        num_actions = int(action.n) if isinstance(action, gym.spaces.Discrete) else 0
        return {
            "obs": ((num_envs, *obs.shape), obs.dtype),
            "final_obs": ((num_envs, *obs.shape), obs.dtype),
            "rewards": ((num_envs,), np.float64),
            "terminated": ((num_envs,), np.bool_),
            "truncated": ((num_envs,), np.bool_),
            "masks": ((num_envs, num_actions if self.masked else 0), np.bool_),
            "actions": ((num_envs, *action.shape), action.dtype),
        }


class Face:
    """What a policy must know about the envs of an engine."""

    def __init__(self, spec: Spec, spaces: Spaces) -> None:
        self.single_observation_space, self.single_action_space = spaces.observation, spaces.action
        self.packed = bool(spec.options.get("packed"))
        if self.packed:
            env: Any = spec.batch(1)
            self.unpack, self.layout = env.unpack, env.layout


class Slab(NamedTuple):
    """Arrays [n, ...] that a group of envs writes into; `actions` is what it reads."""

    obs: np.ndarray
    final_obs: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    masks: np.ndarray
    actions: np.ndarray

    @classmethod
    def local(cls, spaces: Spaces, num_envs: int) -> Slab:
        """In this process's own memory."""
        shapes = spaces.slab_shapes(num_envs)
        try:
            return cls(**{name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()})
        except (MemoryError, ValueError) as error:  # a size beyond all memory is a ValueError to numpy
            raise RedlineError(f"{num_envs} envs do not fit into memory: {error}. Try fewer (--num-envs).") from error

    def part(self, first: int, last: int) -> Slab:
        """The rows of some of the envs."""
        return Slab(*(array[first:last] for array in self))


class Times(NamedTuple):
    """Nanoseconds a group of envs was at work."""

    step: int
    reset: int
    slowest: int  # of the single steps and resets
    began: int = 0  # on the clock that all processes share


class Report(NamedTuple):
    """What came of a request, besides what stands in the slab."""

    times: Times
    failures: list[Failure]
    extras: dict[str, Any]  # what our simulators say about ended episodes
    infos: list[tuple[int, dict[str, Any], dict[str, Any]]]  # env, info, info of the ended episode's last step


class Status:
    """What a process is doing right now, for others to see: kept in shared memory, so that it outlives the process."""

    FIELDS = 6

    def __init__(self, cells: Any = None) -> None:
        self.cells = [0] * self.FIELDS if cells is None else cells

    def at(self, env: int, phase: int, step: int = 0, action: int = NO_ACTION) -> int:
        """Note that work on an env begins. Returns the time."""
        cells, now = self.cells, time.monotonic_ns()
        cells[0], cells[2], cells[3], cells[4], cells[1] = env, step, action, phase, now
        return now

    def idle(self) -> int:
        """Note that the work is done. Returns the time."""
        cells, now = self.cells, time.monotonic_ns()
        cells[4], cells[1] = 0, now
        return now

    def silent_seconds(self, asked_ns: int) -> float:
        """Time since the last sign of life: since the present step or reset began, or since the process was asked."""
        since = self.cells[1] if self.cells[4] else max(self.cells[1], asked_ns)
        return (time.monotonic_ns() - since) * 1e-9

    @property
    def phase(self) -> int:
        """MAKE, RESET, STEP, or 0 when idle."""
        return int(self.cells[4])

    @property
    def doing(self) -> tuple[int | None, str, int, int | None]:
        """Env, phase, steps of its episode, action (if it is a number)."""
        env, _, step, action, phase, _ = (int(cell) for cell in self.cells)
        return (env if phase else None), PHASES[phase], step, (None if action == NO_ACTION else action)

    @property
    def at_stake(self) -> int:
        """Episodes that nobody else has seen yet: they go with the process."""
        return int(self.cells[5])

    @at_stake.setter
    def at_stake(self, episodes: int) -> None:
        self.cells[5] = episodes


class Singles:
    """Python envs, stepped one after another. `ids` are their numbers among all envs of the engine."""

    def __init__(self, spec: Spec, ids: Sequence[int], status: Status | None = None, infos: bool = False) -> None:
        self.spec, self.ids, self.status, self._keep_infos = spec, list(ids), status or Status(), infos
        # in a worker Ctrl-C never arrives, so there it is the env that raises what looks like it
        self._caught = (Exception, SystemExit) if status is None else (Exception, SystemExit, KeyboardInterrupt)
        self.envs: list[gym.Env | None] = [None] * len(self.ids)
        self._seeds: list[int | None] = [None] * len(self.ids)
        self._steps = [0] * len(self.ids)
        self.slab: Slab | None = None
        self.spaces: Spaces | None = None
        self._extras: list[tuple[int, dict, dict]] = []
        self._first_action: int | None = None
        self._wants_info = False
        self._begun: tuple[int, int | None, Any] | None = None  # the first reset of all, until it is asked for

    def make(self, seed: int | None, k: int = 0) -> Spaces:
        """Make and reset the env at place `k`, to learn its spaces; the others are made by their first reset."""
        self._seeds[k] = seed
        env = self._env(k)
        try:
            answer = self._call(k, RESET, lambda: env.reset(seed=seed))
        except EnvFailed as failed:
            self._broken(k, failed)
            raise
        self._begun = (k, seed, answer)
        info = answer[1] if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict) else {}
        self.status.idle()
        return Spaces(env.observation_space, env.action_space, info.get("action_mask") is not None)

    def use(self, slab: Slab, spaces: Spaces) -> None:
        """From now on write into these arrays."""
        self.slab, self.spaces = slab, spaces
        self._dtype, self._shape = slab.obs.dtype, slab.obs.shape[1:]
        self._floats = self._dtype.kind == "f"
        space = spaces.action
        self._first_action = int(space.start) if isinstance(space, gym.spaces.Discrete) else None
        self._wants_info = spaces.masked or self._keep_infos

    def reset(self, places: Sequence[int], seeds: Sequence[int | None], options: dict | None = None) -> Report:
        """Begin new episodes in some of the envs."""
        started, slowest, failures = time.monotonic_ns(), 0, []
        self._extras = []
        for k, seed in zip(places, seeds, strict=True):
            begun = time.monotonic_ns()
            try:
                self._seeds[k] = self._seeds[k] if seed is None else seed
                self._env(k)
                begun = time.monotonic_ns()  # making an env is not what the deadline of a step follows from
                self._begin(k, seed, options, final=None)
            except EnvFailed as failed:
                failures.append(self._broken(k, failed))
            slowest = max(slowest, time.monotonic_ns() - begun)
        ended = self.status.idle()
        return Report(Times(0, ended - started, slowest, started), failures, {}, self._extras)

    def step(self, places: Sequence[int]) -> Report:
        """Play one step in some of the envs, with the actions of the slab. Ended episodes begin again at once."""
        status, failures, reset_ns, slowest = self.status, [], 0, 0
        self._extras = []
        started = before = time.monotonic_ns()
        actions = self._actions(places)
        for k, action in zip(places, actions, strict=True):
            if self.envs[k] is None:  # dropped
                continue
            try:
                ended = self._step(k, action, before)
                if ended:
                    now = time.monotonic_ns()
                    self._begin(k, None, None, final=ended)
                    reset_ns += time.monotonic_ns() - now
            except EnvFailed as failed:
                failures.append(self._broken(k, failed))
            now = time.monotonic_ns()
            slowest, before = max(slowest, now - before), now
        failures += self._not_finite(places)
        total = status.idle() - started
        return Report(Times(total - reset_ns, reset_ns, slowest, started), failures, {}, self._extras)

    def _actions(self, places: Sequence[int]) -> list[Any]:
        """The actions as envs want them: plain numbers where they are discrete, arrays of their own where not."""
        assert self.slab is not None
        chosen = self.slab.actions[list(places)]  # a copy
        first = self._first_action
        if first is None:
            return list(chosen)
        return chosen.tolist() if first == 0 else (chosen + first).tolist()

    def _step(self, k: int, action: Any, now: int) -> dict | None:
        """Play one step, at time `now`. Returns the info of an ended episode (with something in it), or None."""
        slab, env = self.slab, self.envs[k]
        assert slab is not None and env is not None
        cells = self.status.cells  # as in `Status.at`, which would cost as much again as a call
        cells[0], cells[2], cells[4], cells[1] = self.ids[k], self._steps[k], STEP, now
        cells[3] = NO_ACTION if self._first_action is None else action
        try:
            answer = env.step(action)
        except self._caught as error:
            raise self._raised(k, STEP, error) from None
        if not isinstance(answer, tuple) or len(answer) != 5 or not isinstance(answer[4], dict):
            raise self._failed(k, STEP, _not_five(answer))
        obs, reward, terminated, truncated, info = answer
        if type(obs) is np.ndarray and obs.dtype == self._dtype and obs.shape == self._shape:
            slab.obs[k] = obs
        else:
            self._put(slab.obs, k, obs, STEP)
        slab.rewards[k] = self._reward(k, reward)
        if terminated is not False or truncated is not False:
            terminated, truncated = self._flag(k, terminated), self._flag(k, truncated)
        slab.terminated[k], slab.truncated[k] = terminated, truncated
        if terminated or truncated:
            slab.final_obs[k] = slab.obs[k]
            if self._floats and not np.isfinite(slab.final_obs[k]).all():
                raise self._failed(k, STEP, _where_not_finite(slab.final_obs[k]))
            return {"": info}
        self._steps[k] += 1
        if self._wants_info:
            self._take_info(k, info, {}, STEP)
        return None

    def _begin(self, k: int, seed: int | None, options: dict | None, final: dict | None) -> None:
        """Reset one env, making it first if need be."""
        assert self.slab is not None
        env = self._env(k)
        self._steps[k] = 0
        more = {} if options is None else {"options": options}
        answer = self._begun_already(k, seed, more) or self._call(k, RESET, lambda: env.reset(seed=seed, **more))
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            raise self._failed(k, RESET, "reset did not return (observation, info); wrap an old gym env first")
        self._put(self.slab.obs, k, answer[0], RESET)
        if self._floats and not np.isfinite(self.slab.obs[k]).all():
            raise self._failed(k, RESET, _where_not_finite(self.slab.obs[k]))
        self._take_info(k, answer[1], final[""] if final else {}, RESET)

    def _begun_already(self, k: int, seed: int | None, more: dict) -> Any:
        """What the reset in `make` answered, if it is the very one that is asked for now."""
        if self._begun is None or self._begun[0] != k:
            return None
        (_, begun_seed, answer), self._begun = self._begun, None
        return answer if seed is not None and seed == begun_seed and not more else None

    def _env(self, k: int) -> gym.Env:
        env = self.envs[k]
        if env is None:
            env = self.envs[k] = self._call(k, MAKE, self.spec.single)
        return env

    def _call(self, k: int, phase: int, work: Any) -> Any:
        self.status.at(self.ids[k], phase, self._steps[k])
        try:
            return work()
        except self._caught as error:
            if isinstance(error, RedlineError) and self.slab is None:
                raise  # bad input, not a fault: no env could be made from it
            raise self._raised(k, phase, error) from None

    def _take_info(self, k: int, info: dict, final: dict, phase: int) -> None:
        if self.spaces.masked:  # type: ignore[union-attr]
            mask = info.get("action_mask")
            if mask is None or np.shape(mask) != self.slab.masks[k].shape:  # type: ignore[union-attr]
                shape = None if mask is None else np.shape(mask)
                raise self._failed(
                    k, phase, f"info['action_mask'] has shape {shape}, but one truth value per action is due"
                )
            if not np.any(mask):
                raise self._failed(k, phase, "info['action_mask'] allows no action at all")
            self.slab.masks[k] = mask  # type: ignore[union-attr]
        if self._keep_infos and (info or final):
            self._extras.append((self.ids[k], info, final))

    def _put(self, where: np.ndarray, k: int, obs: Any, phase: int) -> None:
        """Write an observation after a closer look."""
        try:
            plain = isinstance(obs, int | float | list | tuple)  # has no dtype of its own
            found = np.asarray(obs, self._dtype if plain else None)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._failed(k, phase, f"the observation {_shown(obs)} is no array: {error}") from None
        if found.shape != self._shape:
            raise self._failed(k, phase, f"the observation has shape {found.shape}, but its space says {self._shape}")
        if not np.can_cast(found.dtype, self._dtype):
            raise self._failed(k, phase, f"the observation has dtype {found.dtype}, but its space says {self._dtype}")
        where[k] = found

    def _reward(self, k: int, reward: Any) -> float:
        kind = type(reward)
        if kind is not float:
            if not isinstance(reward, int | float | np.generic) and not (kind is np.ndarray and reward.ndim == 0):
                raise self._failed(k, STEP, f"the reward is {_shown(reward)}, not a number")
            try:
                reward = float(reward)
            except (TypeError, ValueError):
                raise self._failed(k, STEP, f"the reward is {_shown(reward)}, not a number") from None
        if not -MOST_REWARD <= reward <= MOST_REWARD:  # NaN is not, either
            raise self._failed(k, STEP, f"the reward is {reward}, which is no finite 32-bit number")
        return reward

    def _flag(self, k: int, flag: Any) -> bool:
        if flag is True or flag is False:
            return flag
        if isinstance(flag, np.bool_ | int | np.integer) or (isinstance(flag, np.ndarray) and flag.ndim == 0):
            return bool(flag)
        raise self._failed(k, STEP, f"terminated or truncated is {_shown(flag)}, not True or False")

    def _not_finite(self, places: Sequence[int]) -> list[Failure]:
        """Envs whose new observations hold NaN or infinity, looked for in all of them at once."""
        assert self.slab is not None
        new = self.slab.obs if len(places) == len(self.ids) else self.slab.obs[list(places)]
        if not self._floats or np.isfinite(new).all():
            return []
        bad = [k for k in places if not np.isfinite(self.slab.obs[k]).all() and self.envs[k] is not None]
        for k in bad:
            self._steps[k] -= 1  # the step was not finished after all
        return [self._broken(k, self._failed(k, STEP, _where_not_finite(self.slab.obs[k]))) for k in bad]

    def _failed(self, k: int, phase: int, what: str, trace: str = "") -> EnvFailed:
        action = None
        if phase == STEP and self.slab is not None:
            action = (self.slab.actions[k] + (self._first_action or 0)).tolist()
        return EnvFailed(Failure(self.ids[k], PHASES[phase], what, self._seeds[k], self._steps[k], action, trace))

    def _raised(self, k: int, phase: int, error: BaseException) -> EnvFailed:
        what = f"{type(error).__name__}: {error}".split("\n")[0]
        return self._failed(k, phase, what, traceback.format_exc())

    def _broken(self, k: int, failed: EnvFailed) -> Failure:
        """Let a failed env go; its place is empty until the next reset."""
        env, self.envs[k] = self.envs[k], None
        if self.slab is not None:
            self.slab.obs[k] = 0
        _close_quietly(env)
        return failed.failure

    def bad_info(self, env: int, during: str, error: Exception) -> Failure:
        """What is to be said of an env whose info cannot leave this process."""
        k, phase = self.ids.index(env), next(phase for phase, name in PHASES.items() if name == during)
        self._steps[k] = max(0, self._steps[k] - 1)  # the step was not finished after all
        return self._failed(k, phase, f"its info cannot be pickled: {type(error).__name__}: {error}").failure

    def close(self) -> None:
        """Close all envs."""
        for env in self.envs:
            _close_quietly(env)
        self.envs = [None] * len(self.ids)


class Batch:
    """A slice of one of our simulators, stepped by one call. All its envs step and reset together."""

    def __init__(self, spec: Spec, ids: Sequence[int], status: Status | None = None) -> None:
        self.spec, self.ids, self.status = spec, list(ids), status or Status()
        self.env = spec.batch(len(self.ids))

    def make(self, seed: int | None, k: int = 0) -> Spaces:
        """The spaces of the envs."""
        _, infos = self.env.reset(seed=0)
        return Spaces(self.env.single_observation_space, self.env.single_action_space, "action_mask" in infos)

    def use(self, slab: Slab, spaces: Spaces) -> None:
        """From now on write into these arrays."""
        self.slab = slab

    def reset(self, places: Sequence[int], seeds: Sequence[int | None], options: dict | None = None) -> Report:
        """Begin new episodes in all envs."""
        started = self.status.at(self.ids[0], RESET)
        mask = np.zeros(len(self.ids), np.bool_)
        mask[list(places)] = True
        whole: list[int | None] = [None] * len(self.ids)
        for k, seed in zip(places, seeds, strict=True):
            whole[k] = seed
        more = {} if mask.all() else {"reset_mask": mask}
        chosen: Any = whole  # Gymnasium's own vector envs take a list, too
        obs, infos = self.env.reset(seed=chosen, options={**(options or {}), **more} or None)
        self.slab.obs[:] = obs
        self._masks(infos)
        spent = self.status.idle() - started
        return Report(Times(0, spent, spent, started), [], {}, [])

    def step(self, places: Sequence[int]) -> Report:
        """Play one step in all envs."""
        slab, started = self.slab, self.status.at(self.ids[0], STEP)
        obs, rewards, terminated, truncated, infos = self.env.step(slab.actions)
        slab.obs[:], slab.rewards[:], slab.terminated[:], slab.truncated[:] = obs, rewards, terminated, truncated
        if "final_obs" in infos:
            slab.final_obs[:] = infos["final_obs"]
        self._masks(infos)
        spent = self.status.idle() - started
        return Report(Times(spent, 0, spent, started), [], infos.get("episode_metrics", {}), [])

    def _masks(self, infos: dict[str, Any]) -> None:
        if "action_mask" in infos:
            self.slab.masks[:] = infos["action_mask"]

    def close(self) -> None:
        """Close the envs."""
        self.env.close()


def make_slots(spec: Spec, ids: Sequence[int], status: Status, infos: bool, batched: bool) -> Singles | Batch:
    """The envs `ids` in this process: as one batch where they are ours and may step together."""
    return Batch(spec, ids, status) if batched and spec.native else Singles(spec, ids, status, infos)


def _close_quietly(env: gym.Env | None) -> None:
    try:
        if env is not None:
            env.close()
    except (Exception, SystemExit):  # it failed already, and that has been said
        pass


def _not_five(answer: Any) -> str:
    if isinstance(answer, tuple) and len(answer) == 5:
        return f"the info is {_shown(answer[4])}, not a dict"
    count = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
    hint = " (the old gym API: wrap the env so that it tells terminated from truncated)" if count == "4 values" else ""
    return f"step returned {count} instead of (obs, reward, terminated, truncated, info){hint}"


def _where_not_finite(obs: np.ndarray) -> str:
    flat = np.flatnonzero(~np.isfinite(obs.reshape(-1)))
    return f"the observation holds {obs.reshape(-1)[flat[0]]} at place {flat[0]} ({len(flat)} of {obs.size} values)"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
