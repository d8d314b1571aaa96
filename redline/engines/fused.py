"""Lets envs play on by themselves and comes back to the policy only for observations that it has not been asked about.

What it collects is, to the last bit, what `Lockstep` would: envs share nothing, each draws from its own random stream, and a
policy's answer to an observation does not depend on what else it is asked.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from redline.engines.engine import EngineSetup
from redline.engines.lockstep import Lockstep, in_one_call
from redline.engines.settings import split
from redline.rollout import Acting, Answering, Rollout
from redline.threads import Crew
from redline.timing.progress import tell
from redline.timing.stopwatch import Stopwatch
from redline.worlds.batch import BatchEnv
from redline.worlds.play_on import Ends, Going, PlayedColumns

SHARES = 2
"""Parts of the envs for each thread: whoever is done first takes the next, so that none waits for one that has no core."""
WORTH_SHARING = 8192
"""Steps that are left to play from which on it is worth to wake the other threads: after the first rounds few envs are
left, each with a few steps."""


class Fused(Lockstep):
    """Collects from a compiled world that can play on; in lockstep while the policy does not look things up."""

    envs: BatchEnv

    def __init__(self, envs: BatchEnv, seed: int, threads: int = 1) -> None:
        super().__init__(envs, seed)
        assert envs.playing is not None
        self._playing = envs.playing
        shares = 1 if threads == 1 else threads * SHARES
        slices = split(range(envs.num_envs), min(shares, envs.num_envs))
        self._crew = Crew(threads, "player")
        self._parts = [_Part(envs, each[0], each[-1] + 1) for each in slices]

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env under fixed weights."""
        if not (_answers(policy) and policy.looks_up):
            return super().collect(policy, num_steps, watch)
        envs, stats = self.envs, self._stats
        acting, recording, playing = watch.span("policy"), watch.span("record"), watch.span("play")
        stats.begin()
        with recording:
            columns = PlayedColumns.empty(envs.num_envs, num_steps)
            going = Going(np.zeros(envs.num_envs, np.int64), policy.streams, stats.returns, stats.lengths)
            for part in self._parts:
                part.num_ends = 0
        with acting:
            policy.begin(num_steps)
            masks = envs.masks()
            # about nothing yet: a table that observations fit into, so that the world is compiled before the learner
            policy.ask(envs.obs[:0], None if masks is None else masks[:0])
        while True:
            tell(int(going.steps.min()), num_steps)
            with playing:
                self._play_on(policy, going, columns)
            waiting = going.steps < num_steps
            if not waiting.any():
                break
            with acting:
                masks = envs.masks()
                policy.ask(envs.obs[waiting], None if masks is None else masks[waiting])
        with recording:
            ends = self._ends()
            stats.finish(ends.returns, ends.lengths, self._playing.metrics(ends.told))
            cut = columns.truncated[ends.envs, ends.steps] & ~columns.terminated[ends.envs, ends.steps]
            self._obs, self._masks = envs.shown(envs.obs), envs.masks()
        with acting:
            final_obs = ends.final_obs.reshape(-1, *envs.stored.shape)
            cut_values = policy.value(final_obs[cut]) if cut.any() else np.empty(0, np.float32)
            last_values = policy.value(self._obs)
            policy.acted(columns.rows.size)
            observations, masks = policy.observations()
        with recording:
            rollout = Rollout.of_columns(columns, policy.version, observations, masks, last_values)
            rollout.next_values[ends.steps[cut], ends.envs[cut]] = cut_values
            stats.write(rollout)
        return rollout

    def _play_on(self, policy: Answering, going: Going, columns: PlayedColumns) -> None:
        """Every env on to the end of the collect, or to something new."""
        answers = policy.answers()
        left = columns.rows.shape[1] - going.steps

        def play(part: _Part) -> None:
            part.num_ends = self.envs.play_on(
                part.first, part.last, answers, going, columns, part.with_room(), part.num_ends
            )

        parts = [part for part in self._parts if left[part.first : part.last].any()]
        if int(left.sum()) >= WORTH_SHARING:
            self._crew.map(play, parts)
        else:
            for part in parts:
                play(part)

    def _ends(self) -> Ends:
        """The episodes that ended, in the order of their steps and then their envs."""
        found = [part.ends.first(part.num_ends) for part in self._parts]
        joined = [np.concatenate(each) for each in zip(*found, strict=True)]
        order = np.lexsort((joined[0], joined[1]))
        return Ends(*(each[order] for each in joined))

    def close(self) -> None:
        """Close the envs, and let go of the threads."""
        super().close()
        self._crew.dismiss()


_kinds: dict[type, bool] = {}


def _answers(policy: Acting) -> TypeGuard[Answering]:
    """Whether it is of a kind whose answers can be looked up. Told once for each: asking takes as long as many steps."""
    kind = type(policy)
    if kind not in _kinds:
        _kinds[kind] = isinstance(policy, Answering)
    return _kinds[kind]


class _Part:
    """The envs of one thread, and the episodes that ended in them."""

    def __init__(self, envs: BatchEnv, first: int, last: int) -> None:
        self._envs, self.first, self.last = envs, first, last
        self.ends, self.num_ends = envs.new_ends(2 * (last - first)), 0

    def with_room(self) -> Ends:
        """Where to write ends, with room for more."""
        if self.num_ends == len(self.ends.envs):
            bigger = self._envs.new_ends(2 * self.num_ends)
            for new, old in zip(bigger, self.ends, strict=True):
                new[: self.num_ends] = old
            self.ends = bigger
        return self.ends


def fused_or_lockstep(setup: EngineSetup) -> Lockstep:
    """All envs in this process: playing on where their world offers it, else in lockstep."""
    envs = in_one_call(setup)
    try:
        if setup.collecting.play_on and isinstance(envs, BatchEnv) and envs.playing is not None:
            return Fused(envs, setup.first_seed, max(1, setup.collecting.play_threads))
        return Lockstep(envs, setup.first_seed)
    except BaseException:
        envs.close()
        raise
