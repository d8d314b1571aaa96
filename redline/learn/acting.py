"""A policy at work during a collect: the face that engines see.

Weights do not change while an engine collects, so what the policy makes of an observation is worked out once and looked
up from then on. Where observations hardly repeat, looking up is not worth it and the network is asked each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import gymnasium as gym
import numpy as np

from redline.compiled.rng import seed_streams
from redline.compiled.speed import kernel
from redline.engines.settings import split
from redline.learn.distinct import Distinct, words_of
from redline.learn.heads.categorical import Categorical
from redline.learn.heads.head import DrawTable, Head
from redline.learn.numpy_policy import NumpyPolicy, PolicyParameters
from redline.rollout import Acting, Decision
from redline.threads import Crew
from redline.timing.stopwatch import Stopwatch
from redline.worlds.batch import encoding_of
from redline.worlds.play_on import Answers

REPEATS_WORTH_FINDING = 1.25
"""Steps per distinct observation below which looking up is given up, until it is tried again."""
TRY_AGAIN = 20
"""Updates between two tries: a policy that has made up its mind meets the same observations again and again."""
WORTH_SHARING = 128
"""Observations for each thread from which on it is worth to wake them."""


@runtime_checkable
class Steady(Protocol):
    """What a policy has beside `Inferring`, if its answers are steady."""

    def steady_outputs(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Outputs [n, outputs] and state values float32 [n] of observations, before a head makes anything of them."""


class Inferring(Protocol):
    """A policy as an actor needs it: a `Policy`, or a `NumpyPolicy` where there is no torch."""

    head: Head

    @property
    def memory_size(self) -> int:
        """Numbers that it remembers from one step of an env to the next; 0 where it remembers nothing."""

    @property
    def steady(self) -> bool:
        """Whether its answer to an observation is the same, to the last bit, whatever else is asked with it."""

    def infer(
        self, observations: np.ndarray, masks: np.ndarray | None, table: DrawTable, memories: np.ndarray | None = None
    ) -> np.ndarray:
        """State values float32 [n] of observations; the distributions over their actions are written to `table`.

        What is remembered of each env is written to `memories` [n, memory size], where there is any.
        """

    def state_values(self, observations: np.ndarray, memories: np.ndarray | None = None) -> np.ndarray:
        """State values float32 [n] of observations."""

    def parameters(self) -> PolicyParameters:
        """The policy as it is now, for a process without torch."""


@kernel
def _look_up(values, visited, places, chosen_values):
    for i in range(len(places)):
        visited[places[i]] = True
        chosen_values[i] = values[places[i]]


def _some(masks: np.ndarray | None, part: slice) -> np.ndarray | None:
    return None if masks is None else masks[part]


class _Answers:
    """A policy's answers to a number of observations: distributions over actions, and state values."""

    def __init__(self, capacity: int, head: Head) -> None:
        self._head = head
        self.table = head.empty(capacity)
        self.values = np.empty(capacity, np.float32)
        self.visited = np.zeros(capacity, np.bool_)

    def fill(
        self,
        first: int,
        policy: Inferring,
        observations: np.ndarray,
        masks: np.ndarray | None,
        memories: np.ndarray | None = None,
    ) -> None:
        """Ask a policy about observations and keep the answers from place `first` on."""
        part = slice(first, first + len(observations))
        self.values[part] = policy.infer(observations, masks, tuple(array[part] for array in self.table), memories)

    def values_at(self, places: np.ndarray) -> np.ndarray:
        """State values of observations that are acted on."""
        values = np.empty(len(places), np.float32)
        _look_up(self.values, self.visited, places, values)
        return values

    def grown(self, capacity: int) -> _Answers:
        """A copy with more room."""
        bigger = _Answers(capacity, self._head)
        count = len(self.values)
        for new, old in zip(bigger.table, self.table, strict=True):
            new[:count] = old
        bigger.values[:count], bigger.visited[:count] = self.values, self.visited
        return bigger


class Actor:
    """Draws actions for the envs of one engine; env `i` draws from its own random stream.

    A deterministic actor takes the likeliest action instead of drawing one.

    `dedup` asks for each distinct observation to go through the network once. It is given up by itself while
    observations hardly repeat.
    """

    def __init__(
        self,
        policy: Inferring,
        num_envs: int,
        seed: int,
        dedup: bool = True,
        deterministic: bool = False,
        threads: int = 1,
    ) -> None:
        """`threads` share observations that are asked about together, which changes no bit of steady answers."""
        self._crew = Crew(threads, "actor")
        dedup = dedup and not policy.memory_size  # who remembers may answer the same observation in another way
        self.policy, self.dedup, self._deterministic = policy, dedup, deterministic
        self._wanted = dedup
        self._memories = np.zeros((num_envs, policy.memory_size), np.float32)
        self._first_memories = self._memories.copy()
        self.version = 0
        self.watch = Stopwatch()  # give it the trainer's, to see forward and sampling apart
        self._seed = seed
        self.streams = seed_streams(seed, num_envs)
        self._all = np.arange(num_envs)
        self._known: np.ndarray | None = None  # observations worth asking about before they turn up
        self._known_masks: np.ndarray | None = None
        self._distinct: Distinct | None = None
        self._answers = _Answers(num_envs, policy.head)
        self._chunks: list[np.ndarray] = []
        self._mask_chunks: list[np.ndarray] = []
        self._evaluated = self._acted = 0

    def begin(self, num_steps: int) -> None:
        """Forget the answers of older weights; with lookups on, ask at once about all that the last collect met."""
        self._chunks, self._mask_chunks = [], []
        self._evaluated = self._acted = 0
        self._first_memories = self._memories.copy()
        if self._wanted and not self.dedup and self.version % TRY_AGAIN == 0:
            self.dedup, self._known = True, None
        self._answers.visited.fill(False)
        if self._distinct is not None:
            self._distinct.clear()
        if self.dedup and self._known is not None:
            self._rows(self._known, self._known_masks)

    def parameters(self) -> ActorParameters:
        """The actor as it is now, to act likewise in another process."""
        return ActorParameters(self.policy.parameters(), self.version, self._seed, self.dedup, self._deterministic)

    @property
    def looks_up(self) -> bool:
        """Whether answers can be looked up in the next collect: steady ones, to distinct observations, that are numbers."""
        goes_back = self._wanted and self.version % TRY_AGAIN == 0
        steady = self.policy.steady and isinstance(self.policy.head, Categorical)
        return (self.dedup or goes_back) and not self._deterministic and steady

    def ask(self, obs: np.ndarray, masks: np.ndarray | None) -> None:
        """Have the answers to observations at hand."""
        with self.watch.span("forward"):
            self._rows(obs, masks)

    def answers(self) -> Answers:
        """All answers at hand, for a kernel that acts by them."""
        assert self._distinct is not None
        log_probs, cumulative, guide = self._answers.table
        return Answers(self._distinct.index, log_probs, cumulative, guide, self._answers.values, self._answers.visited)

    def acted(self, num_steps: int) -> None:
        """Count steps that were played by the answers at hand."""
        self._acted += num_steps

    def act(self, obs: np.ndarray, masks: np.ndarray | None, envs: np.ndarray | None = None) -> Decision:
        """Draw an action for every env, or for `envs` only."""
        if not self.dedup and self._draws_once:
            with self.watch.span("forward"):
                return self._drawn_once(obs, masks, self._all if envs is None else envs)
        with self.watch.span("forward"):
            if self.dedup:
                rows = places = self._rows(obs, masks)
            else:
                self._fill(obs, masks, envs)
                places = np.arange(len(obs), dtype=np.int32)
                rows = places + np.int32(self._acted)
                self._store(obs, masks)
            self._acted += len(obs)
        with self.watch.span("sample"):
            return self._drawn(rows, places, self._all if envs is None else envs)

    @property
    def _draws_once(self) -> bool:
        """Whether actions are drawn straight from outputs, where an answer is needed once."""
        steady = self.policy.steady and isinstance(self.policy.head, Categorical)
        return steady and not self._deterministic and isinstance(self.policy, Steady)

    def _drawn_once(self, obs: np.ndarray, masks: np.ndarray | None, envs: np.ndarray) -> Decision:
        """One action for each of `envs`, each thread drawing for a share of them."""
        policy, head = self.policy, self.policy.head
        assert isinstance(policy, Steady) and isinstance(head, Categorical)
        rows = np.arange(self._acted, self._acted + len(obs), dtype=np.int32)

        def draw(part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            outputs, values = policy.steady_outputs(obs[part])
            return *head.draw_once(outputs, _some(masks, part), self.streams, envs[part]), values

        found = self._crew.map(draw, self._shares(len(obs)))
        actions, log_probs, values = (np.concatenate(each) for each in zip(*found, strict=True))
        self._store(obs, masks)
        self._acted += len(obs)
        return Decision(actions, log_probs, values, rows, head.played(actions))

    def _shares(self, count: int) -> list[slice]:
        """So many observations, shared by the threads where it is worth to wake them."""
        shares = self._crew.threads if count >= self._crew.threads * WORTH_SHARING else 1
        return [slice(share[0], share[-1] + 1) for share in split(range(count), shares)]

    def _drawn(self, rows: np.ndarray, places: np.ndarray, envs: np.ndarray) -> Decision:
        """One action for each of `envs`, by the policy's answers at `places`."""
        head, table = self.policy.head, self._answers.table
        values = self._answers.values_at(places)
        actions, log_probs = head.draw(table, places, self.streams, envs)
        if self._deterministic:
            actions, log_probs = head.likeliest(table, places)
        return Decision(actions, log_probs, values, rows, head.played(actions))

    def _fill(self, obs: np.ndarray, masks: np.ndarray | None, envs: np.ndarray | None) -> None:
        """Ask about observations of every env, or of `envs`, and let it remember them."""
        if not self.remembers:
            self._ask(0, obs, masks)
            return
        memories = self._memories if envs is None else self._memories[envs]
        self._answers.fill(0, self.policy, obs, masks, memories)
        if envs is not None:
            self._memories[envs] = memories

    def _ask(self, first: int, obs: np.ndarray, masks: np.ndarray | None) -> None:
        """Have answers from place `first` on, each thread asking about a share of the observations."""
        answers, policy = self._answers, self.policy
        if not policy.steady:
            answers.fill(first, policy, obs, masks)
            return

        def ask(part: slice) -> None:
            answers.fill(first + part.start, policy, obs[part], _some(masks, part))

        self._crew.map(ask, self._shares(len(obs)))

    @property
    def remembers(self) -> bool:
        """Whether what it does depends on earlier steps of an episode."""
        return self.policy.memory_size > 0

    def forget(self, envs: np.ndarray) -> None:
        """The episodes of these envs are over: nothing of them is remembered. `envs` are numbers, or true where it is so."""
        self._memories[envs] = 0.0

    def first_memories(self) -> np.ndarray:
        """What was remembered of every env as this collect began, float32 [N, memory size]."""
        return self._first_memories

    def value_of(self, obs: np.ndarray, envs: np.ndarray) -> np.ndarray:
        """State values of observations that follow on what is remembered of `envs`."""
        return self.policy.state_values(obs, self._memories[envs])

    def value(self, obs: np.ndarray) -> np.ndarray:
        """State values of observations that need no action; of all envs, where it remembers."""
        if self.remembers:
            return self.value_of(obs, self._all)
        if self.dedup and not self._mask_chunks:
            rows = self._rows(obs, None)  # may move the table, so it is looked at only afterwards
            return np.asarray(self._answers.values[rows])
        return self.policy.state_values(obs)

    def observations(self) -> tuple[np.ndarray, np.ndarray | None]:
        """All observations of this collect that decisions point to."""
        observations = np.concatenate(self._chunks)
        masks = np.concatenate(self._mask_chunks) if self._mask_chunks else None
        if self.dedup:
            visited = np.flatnonzero(self._answers.visited[: len(observations)])
            visited = visited[np.lexsort(words_of(observations[visited], None if masks is None else masks[visited]).T)]
            self._known = observations[visited]  # in an order that does not tell who met them first
            self._known_masks = None if masks is None else masks[visited]
            if self._acted < REPEATS_WORTH_FINDING * len(self._known):
                self.dedup = False
        return observations, masks

    def _store(self, obs: np.ndarray, masks: np.ndarray | None) -> None:
        self._chunks.append(obs.copy())
        if masks is not None:
            self._mask_chunks.append(masks.copy())

    def _rows(self, obs: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        """Rows of observations in the table, after asking the network about those that are new."""
        words = words_of(obs, masks)
        if self._distinct is None:
            self._distinct = Distinct(words.shape[1])
        rows = self._distinct.find(words)
        count = len(self._distinct)
        if count > self._evaluated:
            first = np.flatnonzero(rows >= self._evaluated)
            _, where = np.unique(rows[first], return_index=True)
            self._learn_about(obs, masks, first[where])
        return rows

    def _learn_about(self, obs: np.ndarray, masks: np.ndarray | None, new: np.ndarray) -> None:
        needed = self._evaluated + len(new)
        if needed > len(self._answers.values):
            self._answers = self._answers.grown(2 * needed)
        fresh, fresh_masks = obs[new], None if masks is None else masks[new]
        self._store(fresh, fresh_masks)
        self._ask(self._evaluated, fresh, fresh_masks)
        self._evaluated = needed

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        arrays = {"streams": self.streams.copy(), "dedup": np.array([self.dedup, self._wanted])}
        if self.remembers:
            arrays["memories"] = self._memories.copy()
        if self._known is not None:
            arrays["known"] = self._known
        if self._known_masks is not None:
            arrays["known_masks"] = self._known_masks
        return arrays

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        self.streams[:] = arrays["streams"]
        if "memories" in arrays:
            self._memories[:] = arrays["memories"]
        self.dedup, self._wanted = bool(arrays["dedup"][0]), bool(arrays["dedup"][-1])
        self._known, self._known_masks = arrays.get("known"), arrays.get("known_masks")


@dataclass(frozen=True)
class ActorParameters:
    """All that is needed to act with the same weights in another process, where torch may be missing. Picklable."""

    policy: PolicyParameters
    version: int
    seed: int
    dedup: bool
    deterministic: bool

    def actor(self, num_envs: int, env: object, observation_space: gym.Space, before: Acting | None = None) -> Actor:
        """Acts in `env` and its like. `before` is the actor of older weights, whose random streams go on."""
        policy = NumpyPolicy(self.policy, encoding_of(env, observation_space))
        actor = (
            before if isinstance(before, Actor) else Actor(policy, num_envs, self.seed, self.dedup, self.deterministic)
        )
        actor.policy, actor.version = policy, self.version
        return actor
