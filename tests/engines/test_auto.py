"""How the fastest engine is found, and which of those that are as fast is taken."""

from __future__ import annotations

import dataclasses
import multiprocessing

import pytest

from redline.engines import ENGINES, Collecting
from redline.engines.auto import AS_GOOD, Probe, Trial, _best, _probe, _why, choose
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


def test_engines_that_come_to_no_end_are_given_up_and_the_sentence_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("redline.engines.auto.TRIAL_LIMIT", 0.3)
    monkeypatch.setattr("redline.engines.auto.PROBE_LIMIT", 0.3)
    slow = {"mean_ms": 10_000, "wait": True}
    choice = choose("slow", 2, 4, slow, Collecting(workers=1), scripted, lambda text: None, seconds=0.02)
    assert ENGINES[choice.engine].has_workers and choice.workers == 1
    assert choice.why.startswith(f"Taking {choice.engine}: no engine came to an end within ")
    assert multiprocessing.active_children() == []


def test_an_engine_without_workers_is_not_praised_for_them():
    waiting = Probe(seconds=0.01, cpu_seconds=0.001)
    assert "workers" not in _why(Trial("serial", 100.0), [Trial("serial", 100.0)], waiting, 0)
    assert "16 workers" in _why(Trial("shared", 100.0), [Trial("serial", 50.0)], waiting, 16)


def test_an_env_that_waits_is_told_from_one_that_computes():
    assert _probe("slow", {"mean_ms": 20.0, "wait": True}, Collecting(), scripted).waits
    assert not Probe(seconds=0.002, cpu_seconds=0.0019).waits
