from __future__ import annotations

import dataclasses

import pytest
from nasim.scenarios import get_scenario_max, make_benchmark_scenario
from nasim.scenarios.benchmark import AVAIL_GEN_BENCHMARKS, AVAIL_STATIC_BENCHMARKS

from redline.errors import RedlineError
from redline.worlds.nasim.rules.generate import SIZES, generate
from redline.worlds.nasim.rules.scenario import AttackScenario
from redline.worlds.nasim.scenarios import FIXED
from tests.oracles.nasim import facts, facts_of

SEEDS = {"pocp-1-gen": 5, "pocp-2-gen": 5, "huge-gen": 20}


def closed_links_left_out(scenario: AttackScenario) -> AttackScenario:
    return dataclasses.replace(scenario, firewall={k: v for k, v in scenario.firewall.items() if v}, max_score=None)


def test_all_benchmark_networks_are_here():
    assert list(FIXED) == list(AVAIL_STATIC_BENCHMARKS)
    assert list(SIZES) == list(AVAIL_GEN_BENCHMARKS)


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_network_is_the_originals(name):
    ours = FIXED[name]
    assert closed_links_left_out(ours) == facts(name)
    assert ours.max_score == get_scenario_max(name)


@pytest.mark.parametrize("name", SIZES)
def test_equal_seeds_give_equal_networks(name):
    for seed in range(SEEDS.get(name, 100)):
        try:
            theirs = facts(name, seed)
        except AssertionError:
            with pytest.raises(RedlineError, match="can be won"):
                generate(name, SIZES[name], seed)
            continue
        ours = closed_links_left_out(generate(name, SIZES[name], seed))
        assert ours == dataclasses.replace(theirs, name=name)


def test_only_firewalls_depend_on_how_the_original_lists_a_set():
    for seed in range(50):
        as_listed = facts_of(make_benchmark_scenario("medium-gen", seed))
        in_order = facts("medium-gen", seed)
        assert dataclasses.replace(as_listed, firewall=in_order.firewall) == in_order
        sizes = {link: len(services) for link, services in as_listed.firewall.items()}
        assert sizes == {link: len(services) for link, services in in_order.firewall.items()}
