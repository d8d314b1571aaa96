"""What watching costs is measured in turns, and counted."""

from __future__ import annotations

import json

import pytest

from redline.bench.profiler import span_seconds
from redline.cli import main


def test_a_span_costs_about_a_microsecond():
    assert span_seconds(2000) < 20e-6  # a generous bound: the machine may be busy


def test_the_overhead_is_a_share_with_an_interval(capsys: pytest.CaptureFixture[str]):
    arguments = ["cage2", "--num-envs", "16", "--num-steps", "20", "--turns", "3", "--seconds", "0.01"]
    assert main(["bench", "profiler", *arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["low"] <= said["overhead"] <= said["high"]
    assert said["spans_per_update"] > 20
    assert 0 < said["overhead_by_count"] < 1
    assert main(["bench", "profiler", *arguments, "-q"]) == 0
    assert "By count" in capsys.readouterr().out


def test_too_few_turns_are_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "profiler", "cage2", "--turns", "2"]) == 2
    assert "--turns 2 cannot work" in capsys.readouterr().err
