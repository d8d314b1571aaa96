from __future__ import annotations

import gymnasium as gym
import pytest

from redline.errors import RedlineError
from redline.learn.heads import head_for
from redline.learn.heads.categorical import Categorical


def test_a_discrete_space_has_a_categorical_head():
    assert head_for(gym.spaces.Discrete(7, start=3)) == Categorical(7)


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.MultiBinary(3),
        gym.spaces.MultiDiscrete([2, 3]),
        gym.spaces.Box(-1, 1, (2,)),
        gym.spaces.Dict({"a": gym.spaces.Discrete(2)}),
    ],
    ids=str,
)
def test_a_space_without_a_head_is_refused(space):
    with pytest.raises(RedlineError, match="needs a Discrete action space") as refused:
        head_for(space)
    assert str(space).split("(")[0] in str(refused.value)
    assert "\n" not in str(refused.value)
