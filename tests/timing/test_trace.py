"""Traces open in Perfetto: one track per worker, the collector first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redline.errors import RedlineError
from redline.timing.trace import MAIN, Trace, require_writable


def test_every_track_is_named_and_the_collector_comes_first():
    trace = Trace()
    trace.add("worker 10", "step", 5_000, 1_000)
    trace.add("worker 2", "step", 4_000, 2_000)
    trace.span(("collect", "wait"), 3_000, 4_000)
    events = trace.to_json()["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [names[tid] for tid in sorted(names)] == [MAIN, "worker 2", "worker 10"]
    spans = {
        (names[event["tid"]], event["name"]): (event["ts"], event["dur"]) for event in events if event["ph"] == "X"
    }
    assert spans == {(MAIN, "wait"): (0.0, 4.0), ("worker 2", "step"): (1.0, 2.0), ("worker 10", "step"): (2.0, 1.0)}


def test_a_trace_does_not_grow_without_bound():
    trace = Trace(most=2)
    for k in range(5):
        trace.add(MAIN, "env", k, 1)
    assert len(trace.events) == 2
    assert trace.to_json()["otherData"] == {"left_out": 3}


def test_a_trace_is_a_json_file(tmp_path: Path):
    Trace().write(tmp_path / "trace.json")
    assert "traceEvents" in json.loads((tmp_path / "trace.json").read_text())


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path):
    require_writable(tmp_path / "fine.json", "--trace")
    assert not (tmp_path / "fine.json").exists()
    with pytest.raises(RedlineError, match=r"--trace .*nowhere.* cannot be written"):
        require_writable(tmp_path / "nowhere" / "trace.json", "--trace")
