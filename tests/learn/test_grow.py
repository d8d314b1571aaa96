"""Weights for an observation that has grown."""

from __future__ import annotations

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.learn.grow import grow
from redline.learn.heads.categorical import Categorical
from redline.learn.policy import Policy
from redline.worlds.encoding import plain


def policy(*names: str, hidden: tuple[int, ...] = (5,)) -> Policy:
    return Policy(plain((len(names),), np.float32, names), Categorical(3), hidden)


def outputs(of: Policy, *row: float) -> list[float]:
    logits, values = of.network(of.inputs(np.array([row], np.float32)))
    return [*logits[0].tolist(), values[0].item()]


def test_a_policy_plays_as_before_whatever_is_new_in_what_it_sees():
    old, new = policy("heat", "wind"), policy("clock", "wind", "heat")
    grow(new, old.arrays(), ("heat", "wind"))
    assert outputs(new, 9.0, 2.0, 1.0) == pytest.approx(outputs(old, 1.0, 2.0), abs=1e-6)
    assert outputs(new, -4.0, 2.0, 1.0) == outputs(new, 9.0, 2.0, 1.0)


def test_an_input_that_is_gone_takes_its_weights_with_it():
    old, new = policy("heat", "wind"), policy("wind")
    grow(new, old.arrays(), ("heat", "wind"))
    assert outputs(new, 3.0) == pytest.approx(outputs(old, 0.0, 3.0), abs=1e-6)


def test_without_hidden_layers_the_heads_grow():
    old, new = policy("heat", hidden=()), policy("heat", "wind", hidden=())
    grow(new, old.arrays(), ("heat",))
    assert outputs(new, 2.0, 7.0) == pytest.approx(outputs(old, 2.0), abs=1e-6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(RedlineError, match="--hidden"):
        grow(policy("heat", "wind"), policy("heat", hidden=(4,)).arrays(), ("heat",))
    with pytest.raises(RedlineError, match="names"):
        grow(policy("heat"), policy("heat").arrays(), ())
