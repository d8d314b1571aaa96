"""How the fastest engine is found, and which of those that are as fast is taken."""

from __future__ import annotations

import dataclasses

import pytest

from redline.engines import ENGINES, Collecting
from redline.engines.auto import AS_GOOD, Trial, _best, choose
from redline.engines.spec import EnvDescription
from tests.engines.scripted import Scripted


def scripted(env: EnvDescription, num_envs: int) -> Scripted:
    return Scripted(int(env.single_action_space.n))


def test_of_engines_that_are_as_fast_the_simplest_is_taken():
    simplest_first = sorted(ENGINES, key=lambda name: ENGINES[name].rank)
    trials = [Trial(name, 100.0 * AS_GOOD) for name in reversed(simplest_first)]
    assert _best(trials).engine == simplest_first[0]
    assert _best([*trials, Trial(simplest_first[-1], 100.0)]).engine == simplest_first[0]
    assert _best([*trials, Trial(simplest_first[-1], 101.0)]).engine == simplest_first[-1]


def test_an_engine_that_nobody_has_heard_of_needs_only_an_entry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ENGINES, "new", dataclasses.replace(ENGINES["vector"], rank=-1))
    said: list[str] = []
    choice = choose("CartPole-v1", 2, 4, {}, Collecting(workers=1), scripted, said.append, seconds=0.02)
    rates = {trial.engine: trial.steps_per_second for trial in choice.trials}
    assert list(rates) == list(ENGINES) and "Trying engine new …" in said
    assert rates["new"] > 0
    assert [trial.note for trial in choice.trials if not trial.steps_per_second] == [
        "not tried: it is for other machines (--ray-address)"
    ]
