"""Nets of one's own: tools in a file, job shops with a choice of machines, classic instances, PNML without a goal."""

from __future__ import annotations

import json

import numpy as np
import pytest

import redline
from redline.cli import main
from redline.errors import RedlineError
from redline.learn.config import TrainConfig
from redline.worlds.petri.dispatching import play_actions, rule_actions
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.job_shop import all_shop_names, find_shop, parse_flexible
from redline.worlds.petri.recipe import fit
from redline.worlds.petri.tool_file import TEMPLATE, read_tool, without_comments


@pytest.fixture
def tool(tmp_path):
    """The template, as data and as a file to spoil."""
    file = tmp_path / "tool.json"
    assert main(["envs", "petri", "--template", str(file)]) == 0
    return without_comments(json.loads(file.read_text())), file


def test_the_template_is_a_tool_that_can_be_run(tool):
    _, file = tool
    instance = parse_petri(f"petri:cluster/{file}?wafers=3&cleaning=on")
    played = play_actions(instance.net, rule_actions(instance, "insertion"))
    assert played.outcome == "done" and played.makespan >= instance.lower_bound
    assert main(["envs", "petri", "--template", str(file)]) == 2  # what is there stays


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data.pop("types"), 'types is missing. Try "types": [[{"at": ["PM1"], "p": 100}]]'),
        (lambda data: data["robots"]["TM1"].pop("reach"), "robots.TM1.reach is missing. Try"),
        (lambda data: data["robots"]["TM1"].update(pick="5"), 'robots.TM1.pick is "5", but takes whole seconds'),
        (lambda data: data["places"]["PM1"].update(kind="chamber"), 'places.PM1.kind is "chamber", but takes one of source'),
        (lambda data: data["places"]["PM1"].update(capcity=1), "Did you mean 'places.PM1.capacity'"),
        (lambda data: data["places"].pop("LP"), "places has 0 of kind source"),
        (lambda data: data["types"][0][0].update(at=["PM9"]), "types[0][0].at: 'PM9'"),
        (lambda data: data["types"][0][0].update(p=1.5), 'types[0][0].p is 1.5, but takes whole seconds'),
        (lambda data: data["types"][0].append([]), "types[0][2] holds [], but an object is needed there"),
        (lambda data: data["places"]["PM1"].update(loaded_by=["TM9"]), "places.PM1.loaded_by: 'TM9'. Did you mean 'TM1'"),
        (lambda data: data.update(release_order=[9]), 'release_order is [9], but takes types from 1 to 1. Try'),
        (lambda data: data["places"]["PM3"]["cleaning"].pop("duration"), "places.PM3.cleaning.duration is missing"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_with_its_field_and_a_value_that_would_do(tool, spoil, said):
    data, file = tool
    spoil(data)
    file.write_text(json.dumps(data))
    with pytest.raises(RedlineError) as error:
        parse_petri(f"petri:cluster/{file}")
    assert said in str(error.value), str(error.value)


def test_a_route_alone_says_what_it_lacks(tmp_path):
    file = tmp_path / "route.json"
    file.write_text('{"typs": []}')
    with pytest.raises(RedlineError, match="types"):
        parse_petri(f"petri:cluster/{file}")


def test_a_file_of_millions_of_letters_is_not_looked_through(tmp_path):
    path = tmp_path / "long.json"
    path.write_text(json.dumps({"types": [[{"at": ["PM7"], "p": 70}] * 100_000]}))
    with pytest.raises(RedlineError, match="letters, and tools of up to 2,000,000 are read"):
        parse_petri(f"petri:cluster/{path}")


def test_a_tool_from_python_is_the_tool_of_its_file(tool, tmp_path):
    data, file = tool
    made = redline.ClusterTool(**data)
    assert made.net(wafers=3).places == parse_petri(f"petri:cluster/{file}?wafers=3").net.places
    name = made.save(tmp_path / "again.json")
    assert parse_petri(f"{name}?wafers=3").net.transitions == made.net(wafers=3).transitions
    obs, info = made.env(wafers=2).reset(seed=0)
    assert info["action_mask"].any() and made.envs(3, wafers=2).num_envs == 3 and obs.dtype == np.float32
    with pytest.raises(RedlineError, match=r"must end in \.json"):
        made.save(tmp_path / "tool.txt")


def test_a_job_shop_from_python_may_leave_a_choice_of_machines(tmp_path):
    made = redline.JobShop([[(0, 3), [(1, 2), (2, 4)]], [(1, 5)]])
    name = made.save(tmp_path / "shop.fjs")
    instance = parse_petri(name)
    assert instance.net.action_names == made.net().action_names
    assert find_shop(str(tmp_path / "shop.fjs")).jobs == (((((0, 3),), ((1, 2), (2, 4)))), (((1, 5),),))
    env = made.env()
    _, info = env.reset(seed=0)
    done = False
    while not done:
        _, _, terminated, truncated, info = env.step(int(info["action_mask"].argmax()))
        done = terminated or truncated
    assert info["outcome"] == "done"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 2\n1 1 1 5\n", "announces 2 jobs but has 1"),
        ("1 2\n1 1 3 5\n", "a machine of operation 1 is 3; it must be 1 to 2"),
        ("1 2\n2 1 1 5\n", "the number of machines for operation 2 is missing"),
        ("1 2\n1 1 1 5 9\n", "numbers behind its 1 operations"),
        ("nothing\n", "first line must give the numbers"),
    ],
)
def test_a_wrong_flexible_shop_is_told_with_its_job(text, said):
    with pytest.raises(RedlineError) as error:
        parse_flexible("shop", text)
    assert said in str(error.value)


def test_the_classic_job_shops_are_there_with_the_best_that_is_known():
    names = all_shop_names()
    families = {"ft": 3, "la": 40, "abz": 5, "orb": 10, "swv": 20, "ta": 80}
    assert {family: sum(name.rstrip("0123456789") == family for name in names) for family in families} == families
    for name, size, best in (("la40", (15, 15), 1222), ("abz8", (20, 15), 665), ("ta80", (100, 20), 5183)):
        shop = find_shop(name)
        assert (len(shop.jobs), shop.machines) == size and shop.best == best
    assert find_shop("abz8").optimum is None  # not proven
    assert parse_petri("petri:jobshop/orb05").optimum == 887


def test_pnml_without_a_goal_can_be_looked_at_but_not_trained_on(tmp_path):
    from tests.worlds.petri.test_nets import DATA

    net = DATA / "pnml" / "kanban_1.pnml"
    assert parse_petri(f"petri:{net}").net.places
    with pytest.raises(RedlineError, match=r"has no goal, so every reward would be 0\. Say .*\?goal=\w+:1"):
        fit(TrainConfig(f"petri:{net}"), frozenset(), lambda text: None)


def test_comments_are_for_people():
    assert "//" in TEMPLATE and "//" not in str(without_comments(TEMPLATE))
    assert read_tool("tool", TEMPLATE)[1].robots["TM1"].hold_limit == 20
