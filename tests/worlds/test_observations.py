"""How observations of every space are stored and seen."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from redline.errors import RedlineError
from redline.worlds.encoding import Image, Plain
from redline.worlds.observations import Flattener, space_encoding
from tests.contracts.toys import Ground

DICT, TUPLE, BOX = gym.spaces.Dict, gym.spaces.Tuple, gym.spaces.Box


def test_several_choices_are_ones_among_zeros():
    seen = space_encoding(gym.spaces.MultiDiscrete([2, 3], start=[0, 5])).decode(np.array([[1, 5], [0, 7]]))
    assert seen.tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_a_nested_space_is_laid_flat_in_its_order():
    obs = {"sign": 4, "rest": (np.array([1, 0], np.int8), np.array([1, 2])), "wide": np.array([[2.5], [-1.0]])}
    flat = Flattener(Ground())
    found = flat.flat(obs)
    assert found.dtype == np.float32
    assert found.tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 1, 2.5, -1.0]  # a Dict is ordered by name: rest, sign, wide
    assert flat.space.shape == found.shape


def test_a_mask_is_no_part_of_what_is_seen_and_a_single_part_stays_as_it_is():
    picture = BOX(0, 255, (9, 9, 3), np.uint8)
    flat = Flattener(DICT({"action_mask": gym.spaces.MultiBinary(3), "picture": picture}))
    assert flat.space == picture
    assert isinstance(space_encoding(flat.space), Image)


def test_a_part_that_does_not_fit_its_space_is_named():
    flat = Flattener(DICT({"a": BOX(0, 1, (2,)), "b": gym.spaces.Discrete(2)}))
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        flat.flat({"a": np.zeros(3), "b": 0})


@pytest.mark.parametrize(
    ("shape", "dtype", "picture"),
    [
        ((84, 84, 3), np.uint8, (3, 84, 84)),
        ((4, 84, 84), np.uint8, (4, 84, 84)),
        ((10, 10, 6), np.bool_, (6, 10, 10)),
        ((10, 10, 10), np.bool_, (10, 10, 10)),
        ((7, 7, 3), np.uint8, (3, 7, 7)),
        ((84, 84), np.uint8, (1, 84, 84)),
    ],
)
def test_pictures_are_recognised_whatever_the_order_of_their_channels(shape, dtype, picture):
    high = 255 if dtype == np.uint8 else 1
    encoding = space_encoding(BOX(0, high, shape, dtype))
    assert isinstance(encoding, Image) and encoding.picture == picture
    one = np.random.default_rng(0).integers(0, high + 1, (1, *shape)).astype(dtype)
    seen = encoding.decode(one).reshape(picture)
    expected = one[0].reshape(picture) if shape[0] == picture[0] or len(shape) == 2 else np.moveaxis(one[0], -1, 0)
    if shape == (10, 10, 10):  # both might be channels: the last are
        expected = np.moveaxis(one[0], -1, 0)
    np.testing.assert_allclose(seen, expected.astype(np.float32) / high, rtol=1e-6)


@pytest.mark.parametrize("space", [BOX(0, 1, (84, 84, 3)), BOX(0, 255, (3, 3, 3), np.uint8), BOX(0, 9, (4,), np.int64)])
def test_other_arrays_are_no_pictures(space):
    assert isinstance(space_encoding(space), Plain)


def test_bytes_are_seen_between_zero_and_one():
    seen = space_encoding(BOX(0, 255, (3,), np.uint8)).decode(np.array([[0, 51, 255]], np.uint8))
    np.testing.assert_allclose(seen, [[0, 0.2, 1]], rtol=1e-6)


def test_a_single_number_is_enough():
    assert space_encoding(BOX(0, 1, ())).decode(np.ones((2,), np.float32)).shape == (2, 1)


@pytest.mark.parametrize(
    "space", [gym.spaces.Text(3), DICT({"a": gym.spaces.Text(3)}), DICT({}), BOX(0, 1, (0,)), TUPLE(())], ids=str
)
def test_what_nothing_can_be_learned_from_is_refused_in_one_line(space):
    with pytest.raises(RedlineError, match="Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple") as refused:
        space_encoding(space)
    assert "\n" not in str(refused.value)
