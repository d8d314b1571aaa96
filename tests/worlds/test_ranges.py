"""Every field of a state that rules are handed has a range, so that a stranger's checkpoint can be looked through."""

from __future__ import annotations

import pytest

import redline


@pytest.mark.parametrize("name", ["cage2", "cage2?observation=memory&actions=useful", "nasim:tiny"])
def test_no_field_is_without_a_range_and_what_is_played_lies_within(name):
    env = redline.make_env(name, 3)
    env.reset(seed=0)
    for _ in range(20):
        env.step(env.action_space.sample())
    assert env.undeclared_fields() == []
    env.restore(env.snapshot())
