"""The worker's side of engines that collect whole episodes: groups of envs, played by a policy that was sent along."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from redline.engines.episode_stats import PlayedEpisode, write_episodes
from redline.engines.faults import EnvFailed, Failure
from redline.engines.spec import Spaces, Spec
from redline.engines.workers.single_envs import SingleEnvs
from redline.engines.workers.status import WorkerStatus
from redline.engines.workers.step_buffers import StepBuffers
from redline.engines.workers.stepping import StepReport, StepTimes
from redline.errors import RedlineError
from redline.rollout import Acting, Decision, Rollout
from redline.timing.stopwatch import Stopwatch

LONGEST = 100
"""Columns end with an episode, but never later than after this many times the steps asked for."""

Event = tuple[str, int, int]  # name, start and duration in nanoseconds


class EnvGroup(NamedTuple):
    """Envs that act together in a worker."""

    number: int
    ids: tuple[int, ...]


class TellSpaces(NamedTuple):
    """Make an env of a group, and tell its spaces."""

    group: EnvGroup
    env: int
    seed: int | None

    @property
    def chosen(self) -> tuple[int, ...]:
        """The envs it is about."""
        return (self.env,)


class PlayEpisodes(NamedTuple):
    """Play whole episodes in envs of a group, at least `num_steps` steps in each."""

    group: EnvGroup
    seeds: dict[int, int]  # of the envs that are to be made anew
    chosen: tuple[int, ...]  # the envs to play
    num_envs: int  # of the engine
    num_steps: int
    policy: bytes
    events: bool = False  # whether to tell when everything was done


EpisodeTask = TellSpaces | PlayEpisodes


class PlayedEpisodes(NamedTuple):
    """Episodes that were played. Columns of the rollout are the envs `ids`."""

    rollout: Rollout | None
    ids: tuple[int, ...]
    failures: list[Failure]
    times: StepTimes
    spans: dict[str, int] = {}  # nanoseconds of what was done besides stepping envs
    events: tuple[Event, ...] = ()  # where they were asked for


TaskAnswer = Spaces | PlayedEpisodes | Failure | RedlineError


class WatchedActor(Acting, Protocol):
    """A policy that acts here, and notes on a watch what that costs."""

    watch: Stopwatch


class EpisodePlayer:
    """The groups of envs that live in this process."""

    def __init__(self, spec: Spec, status: WorkerStatus | None = None) -> None:
        self._spec, self._status = spec, status or WorkerStatus()
        self._groups: dict[int, _GroupAtWork] = {}

    def carry_out(self, task: EpisodeTask) -> TaskAnswer:
        """The answer to a task."""
        try:
            return self._play(task) if isinstance(task, PlayEpisodes) else self._tell_spaces(task)
        except RedlineError as error:
            return RedlineError(str(error))

    def _tell_spaces(self, task: TellSpaces) -> Spaces | Failure:
        try:
            return self._at_work(task.group).learn_spaces(task.env, task.seed)
        except EnvFailed as failed:
            self._groups.pop(task.group.number, None)
            return failed.failure

    def _play(self, task: PlayEpisodes) -> PlayedEpisodes:
        return self._at_work(task.group).play(task)

    def _at_work(self, group: EnvGroup) -> _GroupAtWork:
        if group.number not in self._groups:
            self._groups[group.number] = _GroupAtWork(self._spec, group.ids, self._status)
        return self._groups[group.number]


class _GroupAtWork:
    """The envs of a group and the actor that plays them."""

    def __init__(self, spec: Spec, ids: Sequence[int], status: WorkerStatus) -> None:
        self.envs = SingleEnvs(spec, ids, status)
        self.ids = np.array(ids)
        self._spaces: Spaces | None = None
        self._actor: WatchedActor | None = None
        self._version = -1
        self.returns = np.zeros(len(ids))
        self.lengths = np.zeros(len(ids), np.int64)

    @property
    def masked(self) -> bool:
        """Whether the envs say which actions are allowed."""
        return self._spaces is not None and self._spaces.masked

    @property
    def action_space(self) -> gym.Space | None:
        """Of the envs, once one was made."""
        return None if self._spaces is None else self._spaces.action

    def learn_spaces(self, env: int, seed: int | None) -> Spaces:
        """The spaces of the envs, after making one if need be."""
        if self._spaces is None:
            self._spaces = self.envs.make(seed, self.envs.ids.index(env))
            self.envs.use(StepBuffers.local(self._spaces, len(self.ids)), self._spaces)
        return self._spaces

    def play(self, task: PlayEpisodes) -> PlayedEpisodes:
        """Whole episodes of the chosen envs."""
        try:
            spaces = self.learn_spaces(task.chosen[0], task.seeds.get(task.chosen[0]))
        except EnvFailed as failed:
            return PlayedEpisodes(None, (), [failed.failure], StepTimes(0, 0, 0))
        actor = self._actor_for(task, spaces)
        places = [k for k, i in enumerate(self.ids) if i in task.chosen]
        report = self._begin_fresh(places, task.seeds)
        broken = {failure.env for failure in report.failures}
        columns = [k for k in places if int(self.ids[k]) not in broken]
        if not columns:
            return PlayedEpisodes(None, (), report.failures, report.times)
        collect = _Collect(self, actor, columns, task.num_steps, task.events)
        rollout = collect.run()
        ids = tuple(int(self.ids[k]) for k in columns)
        times, failures = report.times.plus(collect.times), report.failures + collect.failures
        return PlayedEpisodes(rollout, ids, failures, times, collect.spans(), tuple(collect.events))

    def _begin_fresh(self, places: list[int], seeds: dict[int, int]) -> StepReport:
        """Begin episodes in the envs that have seeds to begin from."""
        fresh = [k for k in places if int(self.ids[k]) in seeds]
        report = self.envs.reset(fresh, [seeds[int(self.ids[k])] for k in fresh])
        self.returns[fresh], self.lengths[fresh] = 0.0, 0
        return report

    def _actor_for(self, task: PlayEpisodes, spaces: Spaces) -> WatchedActor:
        policy = pickle.loads(task.policy)
        if policy.version != self._version or self._actor is None:
            env = next((env for env in self.envs.envs if env is not None), None)
            self._actor = policy.actor(task.num_envs, env, spaces.observation, before=self._actor)
            self._version = policy.version
        assert self._actor is not None
        return self._actor


class _Written(NamedTuple):
    """One step of the envs that were playing: arrays [n]."""

    active: list[int]
    decision: Decision
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_values: np.ndarray


class _Collect:
    """One task under way: columns fill step by step and leave when they are long enough and an episode ends."""

    def __init__(
        self, group: _GroupAtWork, actor: WatchedActor, columns: list[int], num_steps: int, events: bool
    ) -> None:
        self._group, self._envs, self._actor = group, group.envs, actor
        self._columns, self._num_steps, self._most = columns, num_steps, LONGEST * num_steps
        self._written: list[_Written] = []
        self._episodes: list[PlayedEpisode] = []
        self._ends = dict.fromkeys(columns, -1)  # last step of a column that ends an episode
        self.failures: list[Failure] = []
        self.times = StepTimes(0, 0, 0)
        self.events: list[Event] = []
        self._watch, self._tell = Stopwatch(), events
        if events:
            self._watch.events = lambda path, start, spent: self.events.append((path[-1], start, spent))
        actor.watch = self._watch

    def spans(self) -> dict[str, int]:
        """Nanoseconds of what was done besides stepping envs."""
        return {
            path[0]: round(spent * 1e9) for path, spent in self._watch.breakdown().seconds.items() if len(path) == 1
        }

    def run(self) -> Rollout:
        """Play until every column is done."""
        active, t = list(self._columns), 0
        with self._watch.span("forward"):
            self._actor.begin(self._num_steps)
        while active and t < self._most:
            active = self._step(t, active)
            t += 1
        with self._watch.span("record"):
            return self._rollout(active)

    def _step(self, t: int, active: list[int]) -> list[int]:
        group, buffers = self._group, self._envs.buffers
        self._envs.status.unreported_episodes = len(active) + len(self._episodes)
        masks = buffers.masks[active] if group.masked else None
        decision = self._actor.act(buffers.obs[active], masks, group.ids[active])
        buffers.actions[active] = decision.for_envs
        report = self._envs.step(active)
        self.times = self.times.plus(report.times)
        if self._tell:
            self.events += _events_of(report.times)
        with self._watch.span("record"):
            return self._note(t, active, decision, report)

    def _note(self, t: int, active: list[int], decision: Decision, report: StepReport) -> list[int]:
        """Write down what came of a step. Returns the columns that go on."""
        buffers, group = self._envs.buffers, self._group
        lost = {failure.env for failure in report.failures if failure.lost}
        gone = {failure.env for failure in report.failures}
        self.failures += report.failures
        group.returns[active] += buffers.rewards[active]
        group.lengths[active] += 1
        terminated, truncated = buffers.terminated[active], buffers.truncated[active]
        next_values = np.full(len(active), np.nan, np.float32)
        kept = np.array([int(group.ids[k]) not in lost for k in active])
        cut = truncated & ~terminated & kept
        if cut.any():
            next_values[cut] = self._actor.value(buffers.final_obs[active][cut])
        rewards = buffers.rewards[active]
        self._written.append(_Written(list(active), decision, rewards, terminated, truncated, next_values))
        ended = (terminated | truncated) & kept
        for k in np.array(active)[ended]:
            self._end_episode(t, int(k), {name: float(values[k]) for name, values in report.metrics.items()})
        full = ended if t + 1 >= self._num_steps else np.zeros_like(ended)
        return [k for j, k in enumerate(active) if not full[j] and int(group.ids[k]) not in gone]

    def _end_episode(self, t: int, k: int, metrics: dict[str, float]) -> None:
        group = self._group
        self._ends[k] = t
        self._episodes.append(PlayedEpisode(float(group.returns[k]), int(group.lengths[k]), metrics))
        group.returns[k], group.lengths[k] = 0.0, 0

    def _rollout(self, unfinished: list[int]) -> Rollout:
        columns, length = self._columns, len(self._written)
        place = {k: j for j, k in enumerate(columns)}
        rollout = Rollout.empty(length, len(columns), self._actor.version, self._group.action_space)
        held = np.zeros((length, len(columns)), np.bool_)
        for t, (active, decision, rewards, terminated, truncated, next_values) in enumerate(self._written):
            where = [place[k] for k in active]
            held[t, where] = True
            rollout.rows[t, where], rollout.actions[t, where] = decision.rows, decision.actions
            rollout.log_probs[t, where], rollout.values[t, where] = decision.log_probs, decision.values
            rollout.rewards[t, where], rollout.next_values[t, where] = rewards, next_values
            rollout.terminated[t, where], rollout.truncated[t, where] = terminated, truncated
        last = np.zeros(len(columns), np.float32)
        if unfinished:  # longer than a collect may get: the episode goes on in the next one
            where = [place[k] for k in unfinished]
            rollout.truncated[-1, where] = True
            last[where] = self._actor.value(self._envs.buffers.obs[unfinished])
        rollout.held = held
        rollout.forget(self._gaps(held))
        rollout.link_values(last)
        rollout.observations, rollout.masks = self._actor.observations()
        write_episodes(self._episodes, rollout)
        if rollout.held.all():
            rollout.held = None
        return rollout

    def _gaps(self, held: np.ndarray) -> list[tuple[int, int, int]]:
        """Cells without a step: behind a column's end, and where an episode was lost."""
        ids = self._group.ids
        lost = {failure.env for failure in self.failures}
        gaps = []
        for j, k in enumerate(self._columns):
            first = self._ends[k] + 1 if int(ids[k]) in lost else int(held[:, j].sum())
            if first < len(held):
                gaps.append((j, first, len(held) - 1))
        return gaps


def _events_of(times: StepTimes) -> list[Event]:
    resets = [("reset", times.began + times.step, times.reset)] if times.reset else []
    return [("step", times.began, times.step), *resets]
