"""Schedules that somebody else wrote down: what they say is what happens, or it is told what does not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from redline.cli import main
from redline.worlds.petri.dispatching import play_actions, rule_actions
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.replay import read_firings, verify
from redline.worlds.petri.schedule import Schedule

NET = "petri:jobshop/ft06"


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    """The schedule of a rule, as it is written down."""
    instance = parse_petri(NET)
    played = play_actions(instance.net, rule_actions(instance, "SPT"))
    return json.loads(
        json.dumps(Schedule(NET, instance.net, played.makespan, played.outcome, played.firings).to_json())
    )


def test_what_was_played_is_found_to_be_as_it_was_written(written: dict[str, Any]) -> None:
    assert verify(read_firings(written)).problem is None


def test_an_end_that_is_not_the_end_of_its_firing_is_told(written: dict[str, Any]) -> None:
    wrong = copy.deepcopy(written)
    wrong["firings"][3]["end"] += 1
    name, start, end = (wrong["firings"][3][key] for key in ("transition", "start", "end"))
    assert verify(read_firings(wrong)).problem == f"{name}, begun at {start}, does not end at {end}"


def test_an_outcome_that_is_another_is_told(written: dict[str, Any]) -> None:
    assert verify(read_firings({**written, "outcome": "scrap"})).problem == "its outcome is 'done', not 'scrap'"


def test_of_several_schedules_each_is_told_and_one_that_is_wrong_is_a_failure(
    written: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "[bold]bad.json"
    good.write_text(json.dumps(written))
    bad.write_text(json.dumps({**written, "makespan": written["makespan"] - 1}))
    assert main(["verify", "petri", "--schedule", f"{good},{bad}"]) == 1
    told = capsys.readouterr().out
    assert "[bold]bad.json: it ends at" in told and "1 of 2 schedules end exactly as recorded" in told
