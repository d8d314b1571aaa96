"""Every nanosecond of a run stands in exactly one row."""

from __future__ import annotations

import pytest

from redline.timing.breakdown import Breakdown
from redline.timing.rows import PARTS, rows
from redline.timing.stopwatch import Stopped, Stopwatch


class FakeClock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Day:
    """Spends whole seconds in spans."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.watch = Stopwatch(self.clock)

    def spend(self, path: str, seconds: int) -> None:
        """Seconds in the innermost of some spans."""
        name, _, rest = path.partition("/")
        with self.watch.span(name):
            if rest:
                self.spend(rest, seconds)
            else:
                self.clock.now += seconds * 10**9


def seconds(day: Day) -> dict[str, float]:
    return {row.name: row.seconds for row in rows(day.watch.breakdown())}


def test_a_day_of_lockstep_in_this_process():
    day = Day()
    for path, spent in {
        "collect/policy/forward": 5, "collect/policy/sample": 2, "collect/policy": 1, "collect/env": 10,
        "collect/record": 3, "learn/gae": 4, "learn/batch": 6, "learn/gradient": 9, "learn/optimizer": 7, "log": 8,
    }.items():  # fmt: skip
        day.spend(path, spent)
    found = seconds(day)
    assert found["Data collection"] == 21
    assert found["env step"] == 10
    assert found["policy forward"] == 6
    assert found["action sampling"] == 2
    assert found["buffer writes"] == 3
    assert (found["GAE"], found["Buffer operations"], found["Training loop"]) == (4, 6, 16)
    assert (found["optimizer step"], found["Logging and checkpoints"], found["unaccounted"]) == (7, 8, 0)


def test_what_workers_did_while_the_collector_waited_is_what_the_waiting_went_into():
    day = Day()
    with day.watch.span("collect"), day.watch.span("wait"):
        day.clock.now += 10 * 10**9
        day.watch.credit("step", 6e9)
        day.watch.credit("reset", 1e9)
        day.watch.credit("forward", 1e9)
    found = seconds(day)
    assert (found["env step"], found["env reset"], found["policy forward"]) == (6, 1, 1)
    assert found["wait / transfer"] == 2


def test_time_outside_every_span_is_unaccounted_and_so_is_a_span_no_row_knows():
    day = Day()
    day.spend("collect/env", 1)
    day.clock.now += 2 * 10**9
    day.spend("elsewhere", 4)
    assert seconds(day)["unaccounted"] == 6


def leaves(breakdown: Breakdown) -> float:
    """The sum of all rows that have no rows of their own."""
    with_details = {part.name for part in PARTS if part.parts}
    return sum(row.seconds for row in rows(breakdown) if row.name not in with_details)


def test_rows_add_up_to_the_whole_run():
    day = Day()
    paths = ["collect", "collect/wait", "collect/send", "collect/env", "learn", "learn/loss", "learn/backward", "log"]
    for k, path in enumerate([*paths, "learn/metrics", "collect/policy", "learn/gradient", "other"]):
        day.spend(path, k + 1)
    day.clock.now += 5 * 10**9
    breakdown = day.watch.breakdown()
    assert leaves(breakdown) == pytest.approx(breakdown.total_seconds, rel=1e-12)
    tops = sum(row.seconds for row in rows(breakdown) if row.depth == 0)
    assert tops == pytest.approx(breakdown.total_seconds, rel=1e-12)


def test_details_are_left_out_on_request():
    day = Day()
    day.spend("collect/env", 1)
    names = [row.name for row in rows(day.watch.breakdown(), details=False)]
    assert names == [*(part.name for part in PARTS), "unaccounted"]


def test_a_watch_tells_its_events_one_by_one():
    day, told = Day(), []
    day.watch.events = lambda *event: told.append(event)
    day.spend("collect/env", 2)
    assert told == [(("collect", "env"), 0, 2 * 10**9), (("collect",), 0, 2 * 10**9)]


def test_a_stopped_watch_records_nothing():
    watch = Stopped()
    with watch.span("collect"), watch.span("env"):
        watch.credit("step", 1.0)
    assert watch.breakdown().seconds == {}
