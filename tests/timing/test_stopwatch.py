from __future__ import annotations

import json

import pytest

from redline.timing.breakdown import Breakdown, merge
from redline.timing.stopwatch import Stopwatch


class FakeClock:
    """Time passes only when told to."""

    def __init__(self) -> None:
        self.nanoseconds = 1_000_000_007  # a clock's zero means nothing

    def __call__(self) -> int:
        return self.nanoseconds

    def advance(self, seconds: float) -> None:
        self.nanoseconds += round(seconds * 1e9)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def watch(clock: FakeClock) -> Stopwatch:
    return Stopwatch(clock)


def spend(watch: Stopwatch, clock: FakeClock, name: str, seconds: float) -> None:
    with watch.span(name):
        clock.advance(seconds)


# Recording


def test_a_span_takes_the_time_between_opening_and_closing(watch, clock):
    clock.advance(1)
    spend(watch, clock, "env", 3)
    clock.advance(2)
    breakdown = watch.breakdown()
    assert breakdown.seconds == {("env",): 3.0}
    assert breakdown.calls == {("env",): 1}
    assert breakdown.total_seconds == 6.0


def test_a_span_does_not_count_its_child_twice(watch, clock):
    with watch.span("collect"):
        clock.advance(1)
        with watch.span("env"):
            clock.advance(3)
    breakdown = watch.breakdown()
    assert breakdown.own_seconds("collect") == 1.0
    assert breakdown.own_seconds("collect", "env") == 3.0
    assert breakdown.seconds["collect",] == 4.0


def test_a_span_does_not_count_its_grandchild_twice(watch, clock):
    with watch.span("update"):
        clock.advance(1)
        with watch.span("learn"):
            clock.advance(2)
            spend(watch, clock, "gae", 4)
    breakdown = watch.breakdown()
    assert breakdown.own_seconds("update") == 1.0
    assert breakdown.own_seconds("update", "learn") == 2.0
    assert breakdown.children() == [("update",)]
    assert breakdown.children(("update",)) == [("update", "learn")]


def test_a_span_is_still_open_after_its_child_was_closed(watch, clock):
    with watch.span("update"), watch.span("collect"):
        spend(watch, clock, "policy", 1)
        spend(watch, clock, "env", 2)
    assert watch.breakdown().children(("update", "collect")) == [
        ("update", "collect", "policy"),
        ("update", "collect", "env"),
    ]


def test_a_span_opened_again_adds_to_what_it_had(watch, clock):
    for seconds in (1, 2, 4):
        spend(watch, clock, "env", seconds)
    assert watch.breakdown().seconds == {("env",): 7.0}
    assert watch.breakdown().calls == {("env",): 3}


def test_spans_of_one_name_in_different_places_are_different_spans(watch, clock):
    for parent, seconds in (("collect", 1), ("learn", 2)):
        with watch.span(parent):
            spend(watch, clock, "policy", seconds)
    spend(watch, clock, "policy", 4)
    seconds = watch.breakdown().seconds
    assert seconds["collect", "policy"] == 1.0
    assert seconds["learn", "policy"] == 2.0
    assert seconds["policy",] == 4.0


def test_a_span_may_hold_one_of_its_own_name(watch, clock):
    with watch.span("walk"):
        clock.advance(1)
        spend(watch, clock, "walk", 2)
    assert watch.breakdown().seconds == {("walk", "walk"): 2.0, ("walk",): 3.0}


def test_siblings_keep_the_order_in_which_they_first_closed(watch, clock):
    for name in ("policy", "env", "record", "env", "policy"):
        spend(watch, clock, name, 1)
    assert watch.breakdown().children() == [("policy",), ("env",), ("record",)]


def test_an_exception_closes_every_span_it_passes_and_is_not_swallowed(watch, clock):
    with pytest.raises(ZeroDivisionError), watch.span("collect"):
        clock.advance(1)
        with watch.span("env"):
            clock.advance(2)
            raise ZeroDivisionError
    spend(watch, clock, "learn", 4)
    assert watch.breakdown().seconds == {("collect", "env"): 2.0, ("collect",): 3.0, ("learn",): 4.0}


# Laps


def test_a_lap_reports_what_happened_since_the_last_one(watch, clock):
    spend(watch, clock, "env", 1)
    first = watch.lap()
    clock.advance(4)
    spend(watch, clock, "env", 2)
    second = watch.lap()
    assert (first.total_seconds, first.seconds, first.calls) == (1.0, {("env",): 1.0}, {("env",): 1})
    assert (second.total_seconds, second.seconds, second.calls) == (6.0, {("env",): 2.0}, {("env",): 1})


def test_a_lap_without_spans_is_all_unaccounted(watch, clock):
    spend(watch, clock, "env", 1)
    watch.lap()
    clock.advance(2)
    lap = watch.lap()
    assert lap.seconds == {}
    assert lap.unaccounted_seconds == 2.0


def test_a_breakdown_is_not_touched_by_what_comes_after(watch, clock):
    spend(watch, clock, "env", 1)
    before = watch.breakdown()
    spend(watch, clock, "env", 2)
    watch.lap()
    assert before == Breakdown(1.0, {("env",): 1.0}, {("env",): 1})


# Breakdowns


def test_time_outside_every_span_is_unaccounted(watch, clock):
    clock.advance(1)
    with watch.span("collect"):
        spend(watch, clock, "env", 2)
    clock.advance(4)
    assert watch.breakdown().unaccounted_seconds == 5.0


def test_own_seconds_and_unaccounted_seconds_add_up_to_the_total(watch, clock):
    clock.advance(1)
    with watch.span("collect"):
        clock.advance(2)
        spend(watch, clock, "policy", 4)
        spend(watch, clock, "env", 8)
    spend(watch, clock, "learn", 1)
    breakdown = watch.breakdown()
    own = sum(breakdown.own_seconds(*path) for path in breakdown.seconds)
    assert own + breakdown.unaccounted_seconds == breakdown.total_seconds == 16.0


def test_a_share_is_a_part_of_the_total():
    breakdown = Breakdown(8.0, {("env",): 2.0}, {("env",): 1})
    assert breakdown.share("env") == 0.25
    assert breakdown.share("never opened") == 0.0
    assert Breakdown(0.0).share("env") == 0.0


def test_a_breakdown_survives_json():
    breakdown = Breakdown(
        7.5, {("collect", "env"): 2.25, ("collect",): 3.1, ("learn",): 0.1}, {("collect", "env"): 100, ("collect",): 1}
    )
    loaded = Breakdown.from_json(json.loads(json.dumps(breakdown.to_json())))
    assert loaded.total_seconds == breakdown.total_seconds
    assert list(loaded.seconds.items()) == list(breakdown.seconds.items())
    assert loaded.calls == {**breakdown.calls, ("learn",): 0}


def test_an_empty_breakdown_survives_json():
    assert Breakdown.from_json(json.loads(json.dumps(Breakdown(0.0).to_json()))) == Breakdown(0.0)


def test_merged_breakdowns_add_up():
    first = Breakdown(4.0, {("collect",): 1.0, ("learn",): 2.0}, {("collect",): 1, ("learn",): 2})
    second = Breakdown(8.0, {("learn",): 4.0, ("eval",): 0.5}, {("learn",): 3, ("eval",): 1})
    assert merge([first, second]) == Breakdown(
        12.0, {("collect",): 1.0, ("learn",): 6.0, ("eval",): 0.5}, {("collect",): 1, ("learn",): 5, ("eval",): 1}
    )


def test_merging_nothing_gives_nothing():
    assert merge([]) == Breakdown(0.0)


def test_merging_leaves_its_parts_as_they_were():
    first = Breakdown(4.0, {("env",): 1.0}, {("env",): 1})
    merge([first, first])
    assert first == Breakdown(4.0, {("env",): 1.0}, {("env",): 1})


def test_without_a_clock_real_time_passes():
    watch = Stopwatch()
    with watch.span("env"):
        pass
    breakdown = watch.breakdown()
    assert 0.0 <= breakdown.seconds["env",] <= breakdown.total_seconds
