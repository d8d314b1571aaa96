"""What a policy does, told of any world."""

from __future__ import annotations

import numpy as np
import pytest

from redline.learn.watching import Move, WatchedEpisode, WatchedStep
from redline.report.habits import plain_habits


def episode(*numbers: int | None) -> WatchedEpisode:
    steps = tuple(WatchedStep(np.zeros(1), Move(number, number=number), 0.0, None) for number in numbers)
    return WatchedEpisode("any", 0, "", ("left", "right", "<wait>"), (), None, steps, True)


def test_shares_are_told_by_thirds_the_commonest_action_first():
    found = plain_habits([episode(0, 1, 1, 1, 1, 2), episode(0, 0, 1, 1, 1, 1)])
    assert found.index("right") < found.index("left") < found.index("&lt;wait&gt;")
    for share in ("75%", "25%", "100%", "67%"):
        assert share in found.replace(" %", "%").replace("\u202f%", "%").replace("&nbsp;", "")


@pytest.mark.parametrize("episodes", [[], [episode(None, None)], [episode()]], ids=["none", "numbers", "empty"])
def test_nothing_is_told_where_actions_are_not_chosen_from_a_list(episodes):
    assert plain_habits(episodes) == ""
