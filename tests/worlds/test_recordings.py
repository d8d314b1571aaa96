"""Recordings of any world: what is replayed, what is found, and what is refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from examples.elevator_original import record
from redline.cli import main
from redline.errors import RedlineError
from redline.worlds.recordings import BEFORE, Comparison, Recorder, Recording, load_arrays, replay
from redline.worlds.registry import world_of

WORLD = "world:examples.elevator:WORLD"
Change = Callable[[dict[str, np.ndarray]], object]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random episodes of the original elevator."""
    path = tmp_path_factory.mktemp("recorded") / "elevator.npz"
    record(path, episodes=8)
    return path


def changed(recorded: Path, change: Change) -> Path:
    """A copy in which something is different."""
    arrays = dict(np.load(recorded))
    change(arrays)
    path = recorded.with_name("changed.npz")
    np.savez(path, **arrays)
    return path


def replayed(path: Path, **options: object) -> Comparison:
    recording = Recording.load(path)
    make = world_of(WORLD).batch
    assert make is not None
    return replay(recording, make(recording.episodes, WORLD, autoreset=False, **options))


def verify(path: Path | str, *more: str, world: str = WORLD) -> int:
    return main(["verify", world, "--traces", str(path), *more])


@pytest.mark.parametrize("turbo", ["--turbo", "--no-turbo"])
def test_the_original_is_played_again_without_a_difference(recorded, turbo, capsys):
    assert verify(recorded, turbo, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    lengths = np.load(recorded)["length"]
    assert (found["episodes"], found["steps"], found["mismatches"]) == (8, lengths.sum(), 0)
    assert found["first_mismatch"] is None


@pytest.mark.parametrize("order", ["good first", "bad first"])
def test_of_several_recordings_the_first_difference_is_told(recorded, order, capsys):
    bad = changed(recorded, lambda arrays: arrays["reward"].__setitem__((2, 1), 99.0))
    files = [recorded, bad] if order == "good first" else [bad, recorded]
    assert verify(",".join(map(str, files)), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["mismatches"] == 1
    assert (found["first_mismatch"]["episode"], found["first_mismatch"]["step"]) == (2, 1)
    assert [each["mismatches"] for each in found["files"]] == ([0, 1] if order == "good first" else [1, 0])


def test_the_first_difference_is_shown_with_its_place_and_exit_code_1(recorded, capsys):
    def change(arrays):
        arrays["obs"][3, 7, 2] += 1
        arrays["obs"][5, 1, 0] += 1
        arrays["reward"][3, 9] -= 0.1

    path = changed(recorded, change)
    assert verify(path) == 1
    text = capsys.readouterr().out
    assert "3 mismatches" in text
    assert "first: episode 3, step 7 (" in text and "obs of call 1: expected " in text
    assert "steps that differ, by what was compared: obs 2, reward 1" in text
    assert verify(path, "--json") == 1
    first = json.loads(capsys.readouterr().out)["first_mismatch"]
    assert (first["episode"], first["step"], first["what"], first["place"]) == (3, 7, "obs", "call 1")
    assert first["expected"] == first["got"] + 1
    assert first["action"] in ("up", "down", "open")


@pytest.mark.parametrize(
    ("change", "what", "place"),
    [
        (lambda a: a["mask"].__setitem__((2, 4, 1), ~a["mask"][2, 4, 1]), "mask", "down"),
        (lambda a: a["terminated"].__setitem__((2, 4), True), "terminated", ""),
        (lambda a: a["truncated"].__setitem__((2, 4), True), "truncated", ""),
        (lambda a: a["reward"].__setitem__((2, 4), 1.5), "reward", ""),
        (lambda a: a.update({"state.waiting": np.full((*a["actions"].shape, 5, 5), 9)}), "state.waiting", "[0, 0]"),
        (lambda a: a["first_obs"].__setitem__((0, 0), 4), "first_obs", "floor"),
    ],
)
def test_every_array_is_compared(recorded, change, what, place):
    found = replayed(changed(recorded, change))
    assert found.first is not None
    assert (found.first.what, found.first.place) == (what, place)
    assert found.by_array[what] == found.mismatches


def test_what_chance_decided_is_dictated(recorded):
    nobody = changed(recorded, lambda arrays: arrays.update({"choice.origin": arrays["choice.origin"] * 0 - 1}))
    found = replayed(nobody)
    assert found.first is not None and found.first.place.startswith("call")
    assert found.first.expected == 1 and found.first.got == 0


def test_a_beginning_that_differs_is_told_as_such(recorded):
    found = replayed(changed(recorded, lambda arrays: arrays["first_obs"].__setitem__((1, 0), 4)))
    assert found.first is not None and found.first.step == BEFORE
    assert str(found.first) == "episode 1, before the first step: first_obs of floor: expected 4, got 0"
    assert found.mismatches == 1


def test_what_the_original_began_with_is_written_into_the_record(recorded):
    def change(arrays):
        arrays["begin.floor"] = np.full(len(arrays["length"]), 2)
        arrays["first_obs"][:, 0] = 2

    found = replayed(changed(recorded, change))
    assert found.first is None or found.first.step != BEFORE
    assert found.mismatches  # the original went on from floor 0


def test_an_episode_that_ends_too_early_is_left_there(recorded):
    lengths = np.load(recorded)["length"]
    found = replayed(recorded, max_steps=10)
    assert found.by_array["end"] == (lengths > 10).sum()
    assert found.steps == np.minimum(lengths, 10).sum()


def test_an_action_that_is_not_allowed_is_not_played(recorded):
    found = replayed(changed(recorded, lambda arrays: arrays["actions"].__setitem__((0, 0), 1)))
    assert found.first is not None
    assert (found.first.step, found.first.what, found.first.action) == (0, "an action that is not allowed", "down")
    assert found.steps == np.load(recorded)["length"][1:].sum()


def test_floats_are_compared_in_the_lower_precision(recorded):
    found = replayed(changed(recorded, lambda arrays: arrays.update(reward=arrays["reward"].astype(np.float32))))
    assert found.mismatches == 0


def test_options_come_from_the_recording_and_from_the_name(recorded, capsys):
    short = changed(recorded, lambda arrays: arrays.update(options=np.array('{"max_steps": 10}')))
    assert verify(short) == 1
    assert verify(short, world=f"{WORLD}?max_steps=200") == 0
    capsys.readouterr()


# What is refused


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a.pop("actions"), "no array 'actions'"),
        (lambda a: a.pop("length"), "no array 'length'"),
        (lambda a: a.update(actions=a["actions"][0]), "must be [E, T]"),
        (lambda a: a.update(actions=a["actions"] + 0.5), "type float64"),
        (lambda a: a.update(actions=a["actions"] + 5), "actions must be 0 to 2"),
        (lambda a: a.update(length=a["length"] + 1000), "claims"),
        (lambda a: a.update(length=a["length"] * 0), "no steps to compare"),
        (lambda a: a.update(length=a["length"] - 1000), "at least 0"),
        (lambda a: a.update(obs=a["obs"][:, :, :5]), "obs has shape"),
        (lambda a: a.update(mask=a["mask"][:, :, :2]), "mask has shape"),
        (lambda a: a.update(rewards=a.pop("reward")), "Did you mean 'reward'?"),
        (lambda a: a.update({"choice.orign": a["choice.origin"]}), "Did you mean 'origin'?"),
        (lambda a: a.update({"choice.origin": a["choice.origin"][:, 0]}), "choice.origin has shape"),
        (lambda a: a.update({"choice.origin": a["choice.origin"] + 1000}), "whole numbers -128 to 127"),
        (lambda a: a.update({"choice.origin": a["choice.origin"] + 0.5}), "whole numbers"),
        (lambda a: a.update({"begin.floor": a["length"] * np.nan}), "not finite"),
        (lambda a: a.update(reward=a["reward"] + np.inf), "not finite"),
        (lambda a: a.update(reward=a["reward"].astype(str)), "must hold numbers"),
        (lambda a: a.update(options=np.array("size=3")), "JSON"),
        (lambda a: a.update(options=np.array('{"size": 3}')), "There is no option 'size'"),
        (lambda a: a.update(options=np.array('{"max_steps": "many"}')), "Try max_steps=200"),
        (lambda a: [a.pop(n) for n in ("obs", "reward", "terminated", "truncated", "mask", "first_obs")], "nothing to"),
    ],
)
def test_a_recording_that_cannot_be_replayed_is_refused_in_one_line(recorded, change, says, capsys):
    assert verify(changed(recorded, change)) == 2
    said = capsys.readouterr().err.strip()
    assert says in said
    assert said.count("\n") == 0


@pytest.mark.parametrize("kind", ["missing", "a folder", "a text", "an array", "cut short", "pickled", "empty"])
def test_what_is_no_recording_is_refused(recorded, kind, tmp_path, capsys):
    path = tmp_path / "odd.npz"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a text":
        path.write_text("not a recording")
    elif kind == "an array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif kind == "cut short":
        path.write_bytes(recorded.read_bytes()[:1000])
    elif kind == "pickled":
        np.savez(path, actions=np.array([{}, []], object))
    elif kind == "empty":
        path.write_bytes(b"")
    assert verify(path) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0 and "odd.npz" in said


def test_a_header_cannot_claim_more_than_the_file_holds(tmp_path):
    path = tmp_path / "huge.npz"
    with zipfile.ZipFile(path, "w") as file, file.open("actions.npy", "w") as member:
        header = {"descr": "<i8", "fortran_order": False, "shape": (1 << 40, 1 << 10)}
        np.lib.format.write_array_header_1_0(member, header)
    with pytest.raises(RedlineError, match="claims"):
        load_arrays(path)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i8', 'shape': (2L,",
        "{[]: 1}",
        "-" * 9000 + "1",
        "(" * 5000,
        "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), 1: 2}",
    ],
    ids=["unfinished", "a list for a name", "minus minus", "deep", "a number for a name"],
)
def test_a_header_that_numpy_stumbles_over_is_told_in_one_line(header, tmp_path):
    path = tmp_path / "odd.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("actions.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + bytes(64))
    with pytest.raises(RedlineError, match="cannot be read as a recording"):
        load_arrays(path)


def test_a_recording_beyond_the_limit_is_not_read(recorded):
    with pytest.raises(RedlineError, match="make several of it"):
        load_arrays(recorded, most_bytes=1000)


# The recorder


def test_episodes_of_different_lengths_are_laid_out_side_by_side(tmp_path):
    recorder = Recorder(max_steps=3)
    for length in (2, 3):
        recorder.begin([0, length], stock=5)
        for t in range(length):
            recorder.step(t, [t, length], reward=-t, choice={"demand": [t, t]}, state={"stock": 5 - t})
    recorder.save(tmp_path / "shop.npz")
    arrays = np.load(tmp_path / "shop.npz")
    assert arrays["actions"].tolist() == [[0, 1, 0], [0, 1, 2]]
    assert arrays["length"].tolist() == [2, 3]
    assert arrays["first_obs"].tolist() == [[0, 2], [0, 3]]
    assert arrays["obs"].shape == (2, 3, 2)
    assert arrays["reward"].tolist() == [[0, -1, 0], [0, -1, -2]]
    assert arrays["begin.stock"].tolist() == [5, 5]
    assert arrays["choice.demand"][1].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert arrays["state.stock"].tolist() == [[5, 4, 0], [5, 4, 3]]
    assert json.loads(str(arrays["options"])) == {"max_steps": 3}


def test_what_an_original_changes_later_is_recorded_as_it_was(tmp_path):
    recorder, stock = Recorder(), [5]
    recorder.begin()
    for _ in range(2):
        recorder.step(0, state={"stock": stock})
        stock[0] -= 1
    recorder.save(tmp_path / "shop.npz")
    assert np.load(tmp_path / "shop.npz")["state.stock"].tolist() == [[[5], [4]]]


def test_a_recorder_refuses_what_cannot_be_laid_out(tmp_path):
    recorder = Recorder()
    with pytest.raises(RedlineError, match="begin first"):
        recorder.step(0)
    with pytest.raises(RedlineError, match="No step was recorded"):
        recorder.save(tmp_path / "nothing.npz")
    recorder.begin()
    recorder.step(0, obs=[1, 2])
    recorder.step(0, obs=[1, 2, 3])
    with pytest.raises(RedlineError, match=r"step 1 .*is not like that of the first"):
        recorder.save(tmp_path / "ragged.npz")
