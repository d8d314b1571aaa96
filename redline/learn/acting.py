"""A policy at work during a collect: the face that engines see.

Weights do not change while an engine collects, so what the network says about an observation is worked out once and
looked up from then on. Where observations hardly repeat, looking up is not worth it and the network is asked each time.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from redline.learn.distinct import Distinct, as_words
from redline.rollout import Decision
from redline.sims.rng import GOLDEN, seed_streams, unit
from redline.sims.speed import kernel
from redline.timing.stopwatch import Stopwatch

REPEATS_WORTH_FINDING = 2.0
"""Steps per distinct observation below which looking up is given up, until it is tried again."""
TRY_AGAIN = 20
"""Updates between two tries: a policy that has made up its mind meets the same observations again and again."""


class Network(Protocol):
    """Something that has an opinion on observations: a `Policy`, or its portable twin without torch."""

    num_actions: int

    def say(
        self, observations: np.ndarray, masks: np.ndarray | None, log_probs: np.ndarray, cumulative: np.ndarray
    ) -> np.ndarray:
        """State values of observations; their log-probabilities and running sums of probability are written."""

    def state_values(self, observations: np.ndarray) -> np.ndarray:
        """State values float32 [n] of observations."""

    def portable(self, version: int, seed: int, dedup: bool) -> Any:
        """The same for another process."""


@kernel
def _draw(cumulative, log_probs, values, visited, rows, streams, envs, actions, chosen_log_probs, chosen_values):
    """One action per env, from its own stream: the first whose running sum exceeds a uniform draw."""
    last = cumulative.shape[1] - 1
    for i in range(len(rows)):
        row = rows[i]
        visited[row] = True
        streams[envs[i]] += GOLDEN
        aim = unit(streams[envs[i]]) * cumulative[row, last]
        low, high = 0, last
        while low < high:
            middle = (low + high) // 2
            if cumulative[row, middle] > aim:
                high = middle
            else:
                low = middle + 1
        actions[i] = low
        chosen_log_probs[i] = log_probs[row, low]
        chosen_values[i] = values[row]


class _Distributions:
    """What the network said about a number of observations."""

    def __init__(self, capacity: int, num_actions: int) -> None:
        self.log_probs = np.empty((capacity, num_actions), np.float32)
        self.cumulative = np.empty((capacity, num_actions), np.float64)
        self.values = np.empty(capacity, np.float32)
        self.visited = np.zeros(capacity, np.bool_)

    def fill(self, first: int, network: Network, observations: np.ndarray, masks: np.ndarray | None) -> None:
        """Ask the network about observations and keep the answers from place `first` on."""
        part = slice(first, first + len(observations))
        self.values[part] = network.say(observations, masks, self.log_probs[part], self.cumulative[part])

    def grown(self, capacity: int) -> _Distributions:
        """A copy with more room."""
        bigger = _Distributions(capacity, self.log_probs.shape[1])
        count = len(self.values)
        bigger.log_probs[:count], bigger.cumulative[:count] = self.log_probs, self.cumulative
        bigger.values[:count], bigger.visited[:count] = self.values, self.visited
        return bigger


class Actor:
    """Draws actions for the envs of one engine; env `i` draws from its own random stream.

    A deterministic actor takes the likeliest action instead of drawing one.

    `dedup` asks for each distinct observation to go through the network once. It is given up by itself while
    observations hardly repeat.
    """

    def __init__(
        self, policy: Network, num_envs: int, seed: int, dedup: bool = True, deterministic: bool = False
    ) -> None:
        self.policy, self.dedup, self._deterministic = policy, dedup, deterministic
        self._wanted = dedup
        self.version = 0
        self.watch = Stopwatch()  # give it the trainer's, to see forward and sampling apart
        self._seed = seed
        self.streams = seed_streams(seed, num_envs)
        self._all = np.arange(num_envs)
        self._known: np.ndarray | None = None  # observations worth asking about before they turn up
        self._known_masks: np.ndarray | None = None
        self._distinct: Distinct | None = None
        self._says = _Distributions(num_envs, policy.num_actions)
        self._chunks: list[np.ndarray] = []
        self._mask_chunks: list[np.ndarray] = []
        self._evaluated = self._acted = 0

    def begin(self, num_steps: int) -> None:
        """Forget what older weights said; with lookups on, ask at once about all that the last collect met."""
        self._chunks, self._mask_chunks = [], []
        self._evaluated = self._acted = 0
        if self._wanted and not self.dedup and self.version % TRY_AGAIN == 0:
            self.dedup, self._known = True, None
        self._says.visited.fill(False)
        if self._distinct is not None:
            self._distinct.clear()
        if self.dedup and self._known is not None:
            self._rows(self._known, self._known_masks)

    def portable(self) -> Any:
        """The policy for another process, where every env draws from a stream of its own, too."""
        return self.policy.portable(self.version, self._seed, self.dedup)

    def act(self, obs: np.ndarray, masks: np.ndarray | None, envs: np.ndarray | None = None) -> Decision:
        """Draw an action for every env, or for `envs` only."""
        with self.watch.span("forward"):
            if self.dedup:
                rows = places = self._rows(obs, masks)
            else:
                self._says.fill(0, self.policy, obs, masks)
                places = np.arange(len(obs), dtype=np.int32)
                rows = places + np.int32(self._acted)
                self._store(obs, masks)
            self._acted += len(obs)
        with self.watch.span("sample"):
            return self._drawn(rows, places, self._all if envs is None else envs)

    def _drawn(self, rows: np.ndarray, places: np.ndarray, envs: np.ndarray) -> Decision:
        """One action for each of `envs`, by what the network said about the observations at `places`."""
        says, count = self._says, len(places)
        actions = np.empty(count, np.int64)
        log_probs, values = np.empty(count, np.float32), np.empty(count, np.float32)
        _draw(
            says.cumulative, says.log_probs, says.values, says.visited,
            places, self.streams, envs, actions, log_probs, values,
        )  # fmt: skip
        if self._deterministic:
            actions = says.log_probs[places].argmax(axis=1)
            log_probs = says.log_probs[places, actions]
        return Decision(actions, log_probs, values, rows)

    def value(self, obs: np.ndarray) -> np.ndarray:
        """State values of observations that need no action."""
        if self.dedup and not self._mask_chunks:
            rows = self._rows(obs, None)  # may move the table, so it is looked at only afterwards
            return np.asarray(self._says.values[rows])
        return self.policy.state_values(obs)

    def observations(self) -> tuple[np.ndarray, np.ndarray | None]:
        """All observations of this collect that decisions point to."""
        observations = np.concatenate(self._chunks)
        masks = np.concatenate(self._mask_chunks) if self._mask_chunks else None
        if self.dedup:
            visited = self._says.visited[: len(observations)]
            self._known = observations[visited]
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
        words = as_words(obs)
        if masks is not None:  # what may be done is part of what is seen
            words = np.concatenate([words, as_words(masks)], axis=1)
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
        if needed > len(self._says.values):
            self._says = self._says.grown(2 * needed)
        fresh, fresh_masks = obs[new], None if masks is None else masks[new]
        self._store(fresh, fresh_masks)
        self._says.fill(self._evaluated, self.policy, fresh, fresh_masks)
        self._evaluated = needed

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        arrays = {"streams": self.streams.copy(), "dedup": np.array([self.dedup, self._wanted])}
        if self._known is not None:
            arrays["known"] = self._known
        if self._known_masks is not None:
            arrays["known_masks"] = self._known_masks
        return arrays

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        self.streams[:] = arrays["streams"]
        self.dedup, self._wanted = bool(arrays["dedup"][0]), bool(arrays["dedup"][-1])
        self._known, self._known_masks = arrays.get("known"), arrays.get("known_masks")
