from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from redline.errors import RedlineError
from redline.learn.heads import head_for
from redline.learn.heads.categorical import Categorical
from redline.learn.heads.components import Components
from redline.learn.heads.gaussian import Gaussian

BOX = gym.spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), dtype=np.float64)
UNBOUNDED = gym.spaces.Box(-np.inf, np.inf, (2,))


def test_every_kind_of_action_has_a_head():
    assert head_for(gym.spaces.Discrete(7, start=3)) == Categorical(7, first=3)
    assert head_for(gym.spaces.MultiDiscrete([2, 3])) == Components((2, 3), (2,), np.dtype(np.int64))
    assert head_for(gym.spaces.MultiBinary(2)) == Components((2, 2), (2,), np.dtype(np.int8))
    assert head_for(BOX) == Gaussian((-1.0, 0.0), (1.0, 4.0), (2,), np.dtype(np.float64))


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (gym.spaces.Dict({"a": gym.spaces.Discrete(2)}), "Discrete, MultiDiscrete, MultiBinary and Box"),
        (gym.spaces.Text(3), "Discrete, MultiDiscrete, MultiBinary and Box"),
        (gym.spaces.Box(-1, 1, (0,)), "hold no number"),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused_in_one_line(space, why):
    with pytest.raises(RedlineError, match=why) as refused:
        head_for(space)
    assert str(space).split("(")[0] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_numbers_outside_of_a_box_are_played_at_its_bounds():
    drawn = np.array([[-3.0, 2.0], [0.5, 9.0]], np.float32)
    assert head_for(BOX).played(drawn).tolist() == [[-1.0, 2.0], [0.5, 4.0]]
    assert head_for(UNBOUNDED).played(drawn).tolist() == drawn.tolist()
