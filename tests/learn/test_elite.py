"""The best episodes are kept whole, whatever rollouts they are spread over."""

from __future__ import annotations

import numpy as np
import pytest

from redline.learn.elite import Elite, Episode
from redline.rollout import Rollout

NUM_ENVS = 5


class Story:
    """Random episodes told in rollouts, and the same episodes one by one."""

    def __init__(self, seed: int, masked: bool = True) -> None:
        self.rng = np.random.default_rng(seed)
        self.masked = masked
        self.open: list[list[tuple]] = [[] for _ in range(NUM_ENVS)]
        self.episodes: list[Episode] = []

    def rollout(self, num_steps: int, gaps: float = 0.0) -> Rollout:
        rollout = Rollout.empty(num_steps, NUM_ENVS)
        seen = self.rng.integers(0, 9, (num_steps * NUM_ENVS, 3)).astype(np.float32)
        masks = self.rng.random((len(seen), 4)) < 0.5 if self.masked else None
        rollout.observations, rollout.masks = seen, masks
        rollout.rows[:] = self.rng.permutation(len(seen)).reshape(num_steps, NUM_ENVS)
        rollout.actions[:] = self.rng.integers(0, 4, rollout.rows.shape)
        rollout.rewards[:] = self.rng.integers(-4, 5, rollout.rows.shape) / 4
        rollout.terminated[:] = self.rng.random(rollout.rows.shape) < 0.1
        if gaps:
            rollout.held = self.rng.random(rollout.rows.shape) >= gaps
            rollout.terminated |= ~rollout.held
        self.note(rollout)
        return rollout

    def note(self, rollout: Rollout) -> None:
        held = rollout.cells()
        for t, i in np.ndindex(rollout.rows.shape):
            if not held[t, i]:
                self.open[i] = []
                continue
            row = rollout.rows[t, i]
            mask = None if rollout.masks is None else rollout.masks[row]
            self.open[i].append((rollout.rewards[t, i], rollout.observations[row], mask, rollout.actions[t, i]))
            if rollout.terminated[t, i]:
                self.close(i)

    def close(self, i: int) -> None:
        rewards, seen, masks, actions = zip(*self.open[i], strict=True)
        stacked = np.stack(masks) if self.masked else None
        self.episodes.append(Episode(np.stack(seen), stacked, np.array(actions), np.array(rewards)))
        self.open[i] = []

    def best(self, keep: int) -> list[float]:
        distinct = {
            episode.actions.tobytes(): episode.total for episode in sorted(self.episodes, key=lambda e: e.total)
        }
        return sorted(distinct.values(), reverse=True)[:keep]


def assert_same(ours: Episode, theirs: Episode) -> None:
    assert ours.total == theirs.total
    for name in Episode._fields:
        assert np.array_equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize("gaps", [0.0, 0.05])
@pytest.mark.parametrize("masked", [True, False])
def test_the_best_are_kept_whole_over_many_rollouts(masked, gaps):
    story, elite = Story(0, masked), Elite(4)
    for num_steps in (7, 3, 12, 5, 1, 9, 20):
        elite.see(story.rollout(num_steps, gaps))
    assert [each.total for each in elite.episodes] == story.best(4)
    for kept in elite.episodes:
        assert_same(kept, next(e for e in story.episodes if np.array_equal(e.actions, kept.actions)))


def test_going_on_from_a_snapshot_is_as_if_nothing_had_happened():
    story, elite = Story(3), Elite(6)
    for num_steps in (7, 3, 12):
        elite.see(story.rollout(num_steps))
    twin = Elite(6)
    twin.restore(elite.snapshot())
    for num_steps in (2, 9, 30):
        rollout = story.rollout(num_steps)
        elite.see(rollout)
        twin.see(rollout)
    assert len(elite.episodes) == 6
    for ours, theirs in zip(elite.episodes, twin.episodes, strict=True):
        assert_same(ours, theirs)


def test_equal_actions_are_kept_once():
    elite = Elite(3)
    episode = Episode(np.zeros((2, 3), np.float32), None, np.array([1, 2]), np.ones(2, np.float32))
    assert elite.add(episode)
    assert not elite.add(episode)
    assert elite.add(episode._replace(actions=np.array([2, 1])))
    assert len(elite.episodes) == 2


def test_what_is_to_go_is_discounted_from_the_end():
    rewards = np.array([1, 2, 4], np.float32)
    episode = Episode(np.zeros((3, 1), np.float32), None, np.zeros(3, np.int64), rewards)
    assert episode.total == 7
    assert episode.to_go(0.5).tolist() == [3.0, 4.0, 4.0]
