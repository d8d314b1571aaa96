"""A taste of `make fuzz`, and everything it has found."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.readers import NAMES, reader
from tests.fuzz.states import Subject

few = settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in NAMES if name != "recordings"])
def test_whatever_is_read_comes_to_an_end_or_to_one_line(name: str) -> None:
    subject = reader(name)

    @few
    @given(st.integers(0, 2**63))
    def read(seed: int) -> None:
        subject.try_one(seed)

    read()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("env", ["cage2", "petri:cluster/S-0?wafers=3", "nasim:small"])
def test_a_state_that_no_training_came_to_is_refused_or_played_on(env: str) -> None:
    import random

    import numpy as np

    subject = Subject(env)
    with np.errstate(all="ignore"):
        let_through = [subject.try_one(random.Random(seed)) for seed in range(30)]
    assert not all(let_through)
