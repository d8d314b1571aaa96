"""Python envs, stepped one after another where they are; every answer is checked before anyone else sees it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

from redline.engines.faults import EnvFailed, Failure
from redline.engines.spec import Snapshot, Spaces, Spec
from redline.engines.workers.masks import mask_of, mask_sizes
from redline.engines.workers.status import MAKE, NO_ACTION, PHASES, RESET, STEP, WorkerStatus
from redline.engines.workers.step_buffers import StepBuffers
from redline.engines.workers.stepping import EnvInfo, Info, StepReport, StepTimes
from redline.engines.workers.validation import (
    BadAnswer,
    checked_flag,
    checked_mask,
    checked_observation,
    checked_reward,
    require_finite,
    require_reset_answer,
    require_step_answer,
    shown,
    told_metrics,
    where_not_finite,
)
from redline.errors import Abandoned, RedlineError, told_by
from redline.files import warn_on_stderr
from redline.processes import CLOSE_SECONDS, TimeUp, ends_in_time
from redline.worlds.batch import SingleEnv
from redline.worlds.observations import MASK, Flattener, flattener, mask_space, stored_space

T = TypeVar("T")

MOST_TRACE = 20_000
"""Letters of a traceback that are told: its end."""


class _Ended(NamedTuple):
    """An episode that has ended, with the info of its last step."""

    info: Info


class _FirstReset(NamedTuple):
    """The reset that showed what the envs' spaces are, and what it answered."""

    place: int
    seed: int | None
    answer: Any


class SingleEnvs:
    """Python envs, stepped one after another. `ids` are their numbers among all envs of the engine."""

    def __init__(self, spec: Spec, ids: Sequence[int], status: WorkerStatus | None = None, infos: bool = False) -> None:
        self.spec, self.ids, self.status, self._keep_infos = spec, list(ids), status or WorkerStatus(), infos
        # in a worker Ctrl-C never arrives, so there it is the env that raises what looks like it
        self._ours = (KeyboardInterrupt, Abandoned, TimeUp) if status is None else ()
        self.envs: list[gym.Env | None] = [None] * len(self.ids)
        self._seeds: list[int | None] = [None] * len(self.ids)
        self._steps = [0] * len(self.ids)
        self._buffers: StepBuffers | None = None
        self._infos: list[EnvInfo] = []
        self._told: dict[int, dict[str, float]] = {}  # metrics of the episodes that ended in this step, by place
        self._masked = self._wants_info = False
        self._discrete = False
        self._flattener: Flattener | None = None
        self._first_reset: _FirstReset | None = None  # until it is asked for

    @property
    def buffers(self) -> StepBuffers:
        """The arrays in use."""
        assert self._buffers is not None
        return self._buffers

    def make(self, seed: int | None, place: int = 0) -> Spaces:
        """The spaces of the envs, after making and resetting one; the others are made by their first reset."""
        self._seeds[place] = seed
        env = self._env(place)
        try:
            answer: Any = self._call(place, RESET, lambda: env.reset(seed=seed))
        except EnvFailed:
            self._discard(place)
            raise
        self._first_reset = _FirstReset(place, seed, answer)
        info = answer[1] if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict) else {}
        self.status.idle()
        in_obs = mask_space(env.observation_space) is not None
        masked = mask_sizes(env.action_space) is not None and (in_obs or mask_of(env, info) is not None)
        stored = stored_space(env.observation_space)
        return Spaces(stored, env.action_space, masked, None if self._flattener is None else env.observation_space)

    def use(self, buffers: StepBuffers, spaces: Spaces) -> None:
        """From now on write into these arrays."""
        self._buffers, self._masked = buffers, spaces.masked
        self._dtype, self._shape = buffers.obs.dtype, buffers.obs.shape[1:]
        self._floats = self._dtype.kind == "f"
        self._discrete = isinstance(spaces.action, gym.spaces.Discrete)
        self._mask_sizes = mask_sizes(spaces.action)
        self._wants_info = spaces.masked or self._keep_infos

    def reset(self, places: Sequence[int], seeds: Sequence[int | None], options: Info | None = None) -> StepReport:
        """Begin new episodes in some of the envs."""
        started, slowest, failures = time.monotonic_ns(), 0, []
        self._infos = []
        for k, seed in zip(places, seeds, strict=True):
            begun = time.monotonic_ns()
            try:
                self._seeds[k] = self._seeds[k] if seed is None else seed
                self._env(k)
                begun = time.monotonic_ns()  # making an env is not what the deadline of a step follows from
                self._begin(k, seed, options, ended=None)
            except EnvFailed as failed:
                failures.append(failed.failure)
                self._discard(k)
            slowest = max(slowest, time.monotonic_ns() - begun)
        ended = self.status.idle()
        return StepReport(StepTimes(0, ended - started, slowest, started), failures, {}, self._infos)

    def step(self, places: Sequence[int]) -> StepReport:
        """Play one step in some of the envs, with the actions of the buffers. Ended episodes begin again at once."""
        failures, reset_ns, slowest = list[Failure](), 0, 0
        self._infos, self._told = [], {}
        started = before = time.monotonic_ns()
        for k, action in zip(places, self._actions(places), strict=True):
            if self.envs[k] is None:  # dropped
                continue
            try:
                ended = self._step(k, action, before)
                if ended is not None:
                    now = time.monotonic_ns()
                    self._begin(k, None, None, ended)
                    reset_ns += time.monotonic_ns() - now
            except EnvFailed as failed:
                failures.append(failed.failure)
                self._discard(k)
            now = time.monotonic_ns()
            slowest, before = max(slowest, now - before), now
        failures += self._not_finite(places)
        total = self.status.idle() - started
        return StepReport(
            StepTimes(total - reset_ns, reset_ns, slowest, started), failures, self._metrics(), self._infos
        )

    def _metrics(self) -> dict[str, np.ndarray]:
        """What envs told about the episodes that ended in this step; NaN where one told nothing."""
        names = dict.fromkeys(name for told in self._told.values() for name in told)
        metrics = {name: np.full(len(self.ids), np.nan) for name in names}
        for k, told in self._told.items():
            for name, value in told.items():
                metrics[name][k] = value
        return metrics

    def _actions(self, places: Sequence[int]) -> list[Any]:
        """The actions as envs want them: plain numbers where they are discrete, arrays of their own where not."""
        chosen = self.buffers.actions[list(places)]  # a copy
        return chosen.tolist() if self._discrete else list(chosen)

    def _step(self, k: int, action: Any, now: int) -> _Ended | None:
        """Play one step, at time `now`. Returns the end of the episode, if this is it."""
        env = self.envs[k]
        assert env is not None
        cells = self.status.cells  # as in `WorkerStatus.at`, which would cost as much again as a call
        cells[0], cells[2], cells[4], cells[1] = self.ids[k], self._steps[k], STEP, now
        cells[3] = action if self._discrete else NO_ACTION
        try:
            answer = env.step(action)
        except BaseException as error:
            if isinstance(error, self._ours):
                raise
            raise self._raised(k, STEP, error) from None
        try:
            return self._take_step(k, answer)
        except Exception as error:
            raise self._unusable(k, STEP, error) from None

    def _take_step(self, k: int, answer: Any) -> _Ended | None:
        """Check what a step answered, and write it down."""
        buffers = self.buffers
        require_step_answer(answer)
        obs, reward, terminated, truncated, info = answer
        if self._flattener is not None:
            obs, info = self._flattened(obs, info)
        if type(obs) is np.ndarray and obs.dtype == self._dtype and obs.shape == self._shape:
            buffers.obs[k] = obs
        else:
            buffers.obs[k] = checked_observation(obs, self._shape, self._dtype)
        buffers.rewards[k] = checked_reward(reward)
        if terminated is not False or truncated is not False:
            terminated, truncated = checked_flag(terminated), checked_flag(truncated)
        buffers.terminated[k], buffers.truncated[k] = terminated, truncated
        if terminated or truncated:
            buffers.final_obs[k] = buffers.obs[k]
            if self._floats:
                require_finite(buffers.final_obs[k])
            self._told[k] = told_metrics(info)
            return _Ended(info)
        self._steps[k] += 1
        if self._wants_info:
            self._take_info(k, info, {})
        return None

    def _begin(self, k: int, seed: int | None, options: Info | None, ended: _Ended | None) -> None:
        """Reset one env, making it first if need be."""
        env = self._env(k)
        self._steps[k] = 0
        more = {} if options is None else {"options": options}
        answer = self._answered_already(k, seed, more)
        if answer is None:
            answer = self._call(k, RESET, lambda: env.reset(seed=seed, **more))
        try:
            require_reset_answer(answer)
            obs, info = answer if self._flattener is None else self._flattened(*answer)
            self.buffers.obs[k] = checked_observation(obs, self._shape, self._dtype)
            if self._floats:
                require_finite(self.buffers.obs[k])
            self._take_info(k, info, {} if ended is None else ended.info)
        except Exception as error:
            raise self._unusable(k, RESET, error) from None

    def _answered_already(self, k: int, seed: int | None, more: Info) -> Any:
        """The answer of the reset in `make`, if it is the very one that is asked for now."""
        if self._first_reset is None or self._first_reset.place != k:
            return None
        first, self._first_reset = self._first_reset, None
        return first.answer if seed is not None and seed == first.seed and not more else None

    def _env(self, k: int) -> gym.Env:
        env = self.envs[k]
        if env is None:
            env = self.envs[k] = self._call(k, MAKE, self.spec.single)
            self._flattener = flattener(env.observation_space)
        return env

    def _flattened(self, obs: Any, info: Info) -> tuple[Any, Info]:
        """An observation that is no array, as one, and the info with the mask that came in it."""
        assert self._flattener is not None
        try:
            flat = self._flattener.flat(obs)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BadAnswer(f"the observation {shown(obs)} does not fit its space: {error}") from None
        mask = obs.get(MASK) if self._masked and isinstance(obs, dict) else None
        return flat, info if mask is None else {**info, MASK: mask}

    def _call(self, k: int, phase: int, work: Callable[[], T]) -> T:
        self.status.at(self.ids[k], phase, self._steps[k])
        try:
            return work()
        except BaseException as error:
            if isinstance(error, self._ours) or (isinstance(error, RedlineError) and self._buffers is None):
                raise  # bad input, not a fault: no env could be made from it
            raise self._raised(k, phase, error) from None

    def _take_info(self, k: int, info: Info, final: Info) -> None:
        if self._masked:
            assert self._mask_sizes is not None
            self.buffers.masks[k] = checked_mask(mask_of(self.envs[k], info), self._mask_sizes)
        if self._keep_infos and (info or final):
            self._infos.append(EnvInfo(self.ids[k], info, final))

    def _not_finite(self, places: Sequence[int]) -> list[Failure]:
        """Envs whose new observations hold NaN or infinity, looked for in all of them at once."""
        obs = self.buffers.obs
        new = obs if len(places) == len(self.ids) else obs[list(places)]
        if not self._floats or np.isfinite(new).all():
            return []
        bad = [k for k in places if not np.isfinite(obs[k]).all() and self.envs[k] is not None]
        failures = []
        for k in bad:
            self._steps[k] -= 1  # the step was not finished after all
            failures.append(self._failed(k, STEP, where_not_finite(obs[k])).failure)
            self._discard(k)
        return failures

    def _failed(self, k: int, phase: int, what: str, trace: str = "") -> EnvFailed:
        action = None
        if phase == STEP and self._buffers is not None:
            action = self._buffers.actions[k].tolist()
        return EnvFailed(Failure(self.ids[k], PHASES[phase], what, self._seeds[k], self._steps[k], action, trace))

    def _raised(self, k: int, phase: int, error: BaseException) -> EnvFailed:
        return self._failed(k, phase, told_by(error), traceback.format_exc()[-MOST_TRACE:])

    def _unusable(self, k: int, phase: int, error: Exception) -> EnvFailed:
        """The failure of an env whose answer is none, or does not let itself be looked at."""
        what = str(error) if isinstance(error, BadAnswer) else f"its answer cannot be used: {told_by(error)}"
        return self._failed(k, phase, what)

    def _discard(self, k: int) -> None:
        """Let a failed env go; its place is empty until the next reset."""
        env, self.envs[k] = self.envs[k], None
        if self._buffers is not None:
            self._buffers.obs[k] = 0
        if env is not None:
            _close(env)

    def info_failure(self, env: int, phase: int, error: Exception) -> Failure:
        """The failure of an env whose info cannot leave this process."""
        k = self.ids.index(env)
        self._steps[k] = max(0, self._steps[k] - 1)  # the step was not finished after all
        return self._failed(k, phase, f"its info cannot be pickled: {told_by(error)}").failure

    def snapshot(self) -> Snapshot | None:
        """The state of envs of a compiled world, one below the other; Python envs cannot tell theirs."""
        batches = [env.batch for env in self.envs if isinstance(env, SingleEnv)]
        if len(batches) < len(self.envs):
            return None
        parts = [batch.snapshot() for batch in batches]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def restore(self, snapshot: Snapshot) -> np.ndarray:
        """Put envs of a compiled world into a state they were in."""
        for k in range(len(self.ids)):
            env = self._env(k)
            if not isinstance(env, SingleEnv):
                raise RedlineError(f"{self.spec.name} cannot be put into a state from a file. Begin a new run.")
            self.buffers.obs[k] = env.batch.restore({name: array[k : k + 1] for name, array in snapshot.items()})[0]
            if self._masked:
                self.buffers.masks[k] = env.action_masks()
        return self.buffers.obs

    def close(self) -> None:
        """Close all envs. One that does not come back is left behind, with those after it."""
        envs, self.envs = self.envs, [None] * len(self.ids)
        for k, env in enumerate(envs):
            if env is not None and not _close(env):
                warn_on_stderr(
                    f"redline: env {self.ids[k]} did not close within {CLOSE_SECONDS:g} s and was left behind."
                )
                break


def _close(env: gym.Env) -> bool:
    """Close an env. Returns whether that came to an end in time."""
    return ends_in_time(env.close, CLOSE_SECONDS)
