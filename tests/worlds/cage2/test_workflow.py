from __future__ import annotations

import itertools

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.worlds.cage2.rules.observe import encoding_of
from redline.worlds.cage2.rules.scenario import Scenario
from redline.worlds.cage2.workflow import ALL_WORKFLOWS, DISTANCES, FIXED_ORDERS, TYPES, Workflow
from tests.oracles.workflows import relabel


def kendall(a: Workflow, b: Workflow) -> float:
    return float(DISTANCES[a.id, b.id])


def swaps_between(a: Workflow, b: Workflow) -> int:
    """How many neighbours a bubble sort swaps to turn one order into the other."""
    places = [b.order.index(kind) for kind in a.order]
    swaps = 0
    for end in range(len(places), 0, -1):
        for left in range(end - 1):
            if places[left] > places[left + 1]:
                places[left], places[left + 1] = places[left + 1], places[left]
                swaps += 1
    return swaps


def test_there_are_120_workflows_sorted_by_id():
    assert len(set(ALL_WORKFLOWS)) == 120
    assert list(ALL_WORKFLOWS) == sorted(ALL_WORKFLOWS)
    assert [workflow.id for workflow in ALL_WORKFLOWS] == list(range(120))


def test_a_workflow_reads_as_it_is_written():
    workflow = Workflow.parse("op_server,enterprise,user,defender,op_host")
    assert workflow == Workflow((2, 1, 4, 0, 3))
    assert str(workflow) == "op_server > enterprise > user > defender > op_host"


@pytest.mark.parametrize("separator", [",", ", ", ">", " > ", "→", " → ", " -> "])
def test_types_may_stand_between_commas_or_arrows(separator):
    assert Workflow.parse(separator.join(reversed(TYPES))) == ALL_WORKFLOWS[119]


@pytest.mark.parametrize("workflow", ALL_WORKFLOWS[::17], ids=str)
def test_what_is_printed_can_be_parsed(workflow):
    assert Workflow.parse(str(workflow)) == workflow


@pytest.mark.parametrize("name", FIXED_ORDERS)
def test_a_fixed_order_goes_by_its_name(name):
    assert Workflow.parse(name) == FIXED_ORDERS[name]
    assert Workflow.parse(name.replace("_", "-").upper()) == FIXED_ORDERS[name]


def test_the_fixed_orders_are_those_of_the_specification():
    assert {name: str(workflow) for name, workflow in FIXED_ORDERS.items()} == {
        "critical_first": "defender > op_server > enterprise > op_host > user",
        "enterprise_focus": "enterprise > defender > op_server > op_host > user",
        "user_priority": "user > defender > enterprise > op_server > op_host",
        "operational_focus": "op_server > op_host > defender > enterprise > user",
        "balanced": "defender > enterprise > op_server > user > op_host",
        "reverse": "user > op_host > enterprise > op_server > defender",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defender,enterprize,op_server,op_host,user", "no host type 'enterprize'. Did you mean 'enterprise'?"),
        ("critical_frist", "no workflow 'critical_frist'. Did you mean 'critical_first'?"),
        ("", "no workflow ''"),
        ("user,defender,user,op_host,op_server", "lists user twice"),
        ("user,op_host,enterprise", "lacks defender, op_server. Try user,op_host,enterprise,defender,op_server."),
        ("user", "lacks defender, enterprise, op_server, op_host."),
    ],
)
def test_a_mistake_is_explained_in_one_line(text, message):
    with pytest.raises(RedlineError) as caught:
        Workflow.parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 2, 3, 3), (1, 2, 3, 4, 5)])
def test_only_an_order_of_all_types_is_a_workflow(order):
    with pytest.raises(ValueError, match="exactly once"):
        Workflow(order)


def test_a_policy_sees_positions_as_rows_and_types_as_columns():
    words = encoding_of(Scenario(workflow="op_server,enterprise,user,defender,op_host"))
    seen = words.decode(np.zeros((1, *words.shape), np.int64))[0]
    rows = seen[-25:].reshape(5, 5)
    assert rows.argmax(axis=1).tolist() == [2, 1, 4, 0, 3]
    assert rows.sum() == seen.sum() == 5


def test_kendall_counts_the_swaps_between_two_orders():
    for a, b in itertools.product(ALL_WORKFLOWS[::7], ALL_WORKFLOWS):
        assert kendall(a, b) == swaps_between(a, b) / 10


def test_kendall_is_a_metric():
    tenths = np.rint(10 * DISTANCES).astype(int)
    assert (tenths == tenths.T).all()
    assert ((tenths == 0) == np.eye(120, dtype=bool)).all()
    assert (tenths[:, None, :] <= tenths[:, :, None] + tenths[None, :, :]).all()


def test_only_the_reversed_order_is_farthest():
    assert (DISTANCES == 1).sum(axis=1).tolist() == [1] * 120
    assert all(kendall(workflow, Workflow(workflow.order[::-1])) == 1 for workflow in ALL_WORKFLOWS)


def test_relabelling_the_types_keeps_every_distance():
    for permutation in ([1, 0, 2, 3, 4], [3, 4, 0, 2, 1]):
        renamed = [relabel(workflow, permutation).id for workflow in ALL_WORKFLOWS]
        assert sorted(renamed) == list(range(120))
        assert (DISTANCES[np.ix_(renamed, renamed)] == DISTANCES).all()


def test_a_relabelled_workflow_names_the_new_types_in_the_old_places():
    assert relabel(Workflow((2, 1, 4, 0, 3)), [1, 0, 2, 3, 4]) == Workflow((2, 0, 4, 1, 3))
