"""Compiled worlds play as they did when their digests were taken."""

import json

import pytest

from tests.worlds.digests import CASES, STORED, take

KNOWN = json.loads(STORED.read_text())


@pytest.mark.parametrize("case", CASES)
def test_a_world_plays_as_it_did(case):
    assert take(case) == KNOWN[case]
