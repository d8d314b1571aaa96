"""The peer written in JAX."""

from __future__ import annotations

import pytest

from redline.bench.peers import peer_at
from redline.errors import RedlineError
from redline.learn.config import TrainConfig, settled

CONFIG = settled(TrainConfig(env="cage2", num_envs=4, num_steps=4, hidden=(4,), total_steps=16))


def test_an_update_of_the_jax_peer_takes_the_steps_it_says():
    pytest.importorskip("jax")
    update = peer_at("benchmarks.jax_peer:jax_style")(CONFIG)
    assert [update(), update()] == [16, 16]


@pytest.mark.parametrize("place", ["no_such_module:make", "json:no_such_function", "json", ":make"])
def test_a_peer_that_cannot_be_imported_is_refused_in_one_line(place):
    with pytest.raises(RedlineError, match=f"--peer {place} cannot be imported"):
        peer_at(place)
