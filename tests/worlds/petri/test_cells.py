"""The numbers of an observation, found by their names."""

from __future__ import annotations

import numpy as np
import pytest

from redline.worlds.petri.dispatching import Game
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.rules import tables
from redline.worlds.petri.rules.net import CLOCKS, GUARDS, KINDS, LAYOUTS, OVERSTAYS, REWARDS
from redline.worlds.petri.rules.tables import tabulate
from tests.worlds.petri.playing import play, seen

NETS = (
    "cluster/J-0", "cluster/4-10?device=cascade_full&arms=2&observe_clock=on&swap_action=on", "cluster/J-0?layout=places",
    "cluster/J-0?layout=graph", "jobshop/ft06?observe_clock=on", "jobshop/la01?buffers=blocking",
    "jobshop/ft06?layout=graph",
)  # fmt: skip
every_net = pytest.mark.parametrize("name", NETS)


@every_net
def test_every_number_and_every_action_has_a_name_of_its_own(name):
    net = parse_petri(name).net
    _, sizes = tabulate(net)
    assert len(set(net.observation_names)) == len(net.observation_names) == sizes.observation
    assert len(set(net.action_names)) == len(net.action_names) == sizes.actions


@pytest.mark.parametrize("names", [KINDS, OVERSTAYS, REWARDS, LAYOUTS, CLOCKS, GUARDS], ids=lambda names: names[0])
def test_rules_know_words_by_their_place_in_the_list(names):
    codes = [getattr(tables, word.upper()) for word in names]
    assert codes == [1 << k if names is GUARDS else k for k in range(len(names))]


@every_net
def test_names_are_told_apart_by_what_they_are_of(name):
    net = parse_petri(name).net
    tables, _ = tabulate(net)
    kinds = ("process", "buffer", "source", "robot") if net.rules.layout == "tool" else ("machine",)
    shown = [place for place in net.places if place.kind in kinds or net.rules.layout in ("places", "graph")]
    for place in shown:
        first = net.observation_names[tables.places[net.places.index(place)].cell]
        assert first.startswith(f"{place.name}.")


def test_a_chamber_tells_of_its_wafer():
    game = Game(parse_petri("cluster/S-0?wafers=2&skip_forced_waits=off").net)
    assert seen(game, "PM1") == dict.fromkeys(seen(game, "PM1"), 0) | {"time_to_leave": 1}
    assert seen(game, "LP") == {"left": 1, "other_type": 0}
    play(game, "u_LP_TM1", "wait", "wait 5", "t_TM1_PM1", "wait", "wait 20", "wait 5")
    assert game.clock == 40
    assert seen(game, "PM1") == {
        "occupied": 1, "processing": 1, "finished": 0, "time_left": 0.75, "progress": 0.25, "time_to_leave": 1,
        "cleaning": 0, "clean_left": 0, "clean_soon": 0,
    }  # fmt: skip
    assert seen(game, "LP") == {"left": 0.5, "other_type": 0}
    assert seen(game, "tool") == {"in_progress": 0.5, "time_to_release": 0, "done": 0}


def test_an_arm_tells_where_its_wafer_goes():
    game = Game(parse_petri("cluster/S-0?wafers=2&arms=2&skip_forced_waits=off").net)
    play(game, "u_LP_TM1")
    assert seen(game, "TM1") | {"arm1.to_PM1": 0} == dict.fromkeys(seen(game, "TM1"), 0) | {
        "arm1.time_to_leave": 1, "arm2.time_to_leave": 1, "moving": 1, "time_left": 0.5,
    }  # fmt: skip
    play(game, "wait", "wait 5")
    arm = {name.removeprefix("arm1."): value for name, value in seen(game, "TM1").items() if name.startswith("arm1")}
    targets = {name: value for name, value in arm.items() if name.startswith("to_")}
    assert {"to_PM1", "to_LP_done"} < set(targets)
    assert targets == dict.fromkeys(targets, 0) | {"to_PM1": 1}
    assert {name: arm[name] for name in arm if name not in targets} == pytest.approx(
        {"ready": 1, "held_too_long": 0, "time_held": 5 / 40, "time_to_leave": 15 / 20}
    )
    assert seen(game, "TM1")["moving"] == 0


def test_a_job_and_its_machine_tell_of_the_operation_that_runs():
    game = Game(parse_petri("jobshop/ft06").net)
    first = game.net.operations[0][0]
    longest = max(op.duration for job in game.net.operations for op in job)
    play(game, "job 0")
    assert seen(game, first.machine)["busy"] == 1
    assert seen(game, first.machine)["time_left"] == pytest.approx(first.duration / longest)
    job = seen(game, "job 0")
    assert (job["running"], job["progress"], job["done"]) == (1, 0, 0)
    assert job["time_left"] == job["next_duration"] == pytest.approx(first.duration / longest)
    assert seen(game, "job 1")["running"] == 0
    assert seen(game, "shop") == {"done": 0}


def test_any_place_tells_how_full_it_is_and_any_transition_how_long_it_still_fires():
    game = Game(parse_petri("jobshop/ft06?layout=places&observe_clock=on").net)
    play(game, "job 0")
    assert seen(game, "W0,0") == {"tokens": 1, "available": 0}
    assert seen(game, "W1,0") == {"tokens": 1, "available": 1}
    assert seen(game, "O0,0") == {"time_left": 1}
    assert seen(game, "O1,0") == {"time_left": 0}
    assert seen(game, "net") == {"done": 0}
    assert game.net.observation_names[-1] == "clock"
    assert game.obs[0, -1] == 0
    play(game, "wait")
    assert game.obs[0, -1] == np.float32(game.clock / game.net.horizon)


def test_a_node_of_a_graph_tells_its_kind():
    game = Game(parse_petri("cluster/S-0?layout=graph&skip_forced_waits=off").net)
    for place in game.net.places:
        kinds = {name: value for name, value in seen(game, place.name).items() if name.startswith("is_")}
        assert kinds == {f"is_{kind}": float(kind == place.kind) for kind in KINDS}
    play(game, "u_LP_TM1")
    assert seen(game, "TM1")["coming"] == 1
    assert seen(game, "TM1")["time_to_arrive"] == 1
