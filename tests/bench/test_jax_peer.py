"""The peer written in JAX."""

from __future__ import annotations

import sys

import pytest

from redline.bench.peers import jax_style
from redline.errors import RedlineError
from redline.learn.config import TrainConfig, settled

CONFIG = settled(TrainConfig(env="cage2", num_envs=4, num_steps=4, hidden=(4,), total_steps=16))


def test_an_update_of_the_jax_peer_takes_the_steps_it_says():
    pytest.importorskip("jax")
    update = jax_style(CONFIG)
    assert [update(), update()] == [16, 16]


def test_without_jax_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "redline.bench.jax_peer", None)
    with pytest.raises(RedlineError, match="peers-jax"):
        jax_style(CONFIG)
