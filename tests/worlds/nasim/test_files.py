from __future__ import annotations

import copy
import dataclasses
import sys

import pytest
import yaml

from redline.errors import RedlineError
from redline.worlds.nasim.yaml_file import read_scenario
from tests.oracles.nasim import facts
from tests.worlds.nasim.networks import write_network


def without_closed(scenario):
    return dataclasses.replace(scenario, firewall={k: v for k, v in scenario.firewall.items() if v})


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "net.yaml"
    write_network(path, seed=5)
    return path


@pytest.mark.parametrize("seed", range(30))
def test_a_file_is_read_as_the_original_reads_it(tmp_path, seed):
    path = tmp_path / "net.v1.yaml"
    write_network(path, seed)
    assert without_closed(read_scenario(str(path))) == facts(str(path))


WRONG = [
    ("subnets", [1, 0], "hosts cannot be in a subnet"),
    ("subnets", [], "no subnets"),
    ("subnets", "three", "must be a list"),
    ("topology", [[1]], "rows of"),
    ("services", ["ssh", "ssh"], "twice"),
    ("services", [22], "in quotes"),
    ("processes", [], "at least one name"),
    ("sensitive_hosts", {}, "nothing to win"),
    ("sensitive_hosts", {"(9, 9)": 1}, "no such host"),
    ("sensitive_hosts", {"1-0": 1}, "not a pair"),
    ("sensitive_hosts", {"__import__('os').getpid()": 1}, "not a pair"),
    ("sensitive_hosts", {"(1, 0)": -1}, "above 0"),
    ("exploits", {"e": {"service": "ssh"}}, "exploit e has no os"),
    ("exploits", {"e": {"service": "x", "os": "bsd", "prob": 0.5, "cost": 1, "access": "user"}}, "not one of"),
    ("exploits", {"e": {"service": "ssh", "os": "x", "prob": 0.5, "cost": 1, "access": "user"}}, "None or one of"),
    ("exploits", {"e": {"service": "ssh", "os": "bsd", "prob": 2, "cost": 1, "access": "user"}}, "0 to 1"),
    ("exploits", {"e": {"service": "ssh", "os": "bsd", "prob": 0.5, "cost": 0, "access": "user"}}, "above 0"),
    ("exploits", {"e": {"service": "ssh", "os": "bsd", "prob": 0.5, "cost": 1, "access": "god"}}, "user or root"),
    ("os_scan_cost", -1, "at least 0"),
    ("os_scan_cost", "free", "must be a number"),
    ("host_configurations", {}, "lacks"),
    ("firewall", {}, "firewall has no"),
    ("step_limit", 0, "above 0"),
    ("colour", "red", "no section colour"),
]


@pytest.mark.parametrize(("section", "value", "why"), WRONG)
def test_a_wrong_file_is_refused_in_one_line(network, section, value, why):
    data = yaml.safe_load(network.read_text())
    data[section] = copy.deepcopy(value)
    network.write_text(yaml.safe_dump(data))
    with pytest.raises(RedlineError, match=why) as error:
        read_scenario(str(network))
    assert "\n" not in str(error.value)
    assert str(network) in str(error.value)
    with pytest.raises(Exception):  # noqa: B017 whatever the original throws
        facts(str(network))


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("sensitive_hosts", {"(1, 0)": 10**39}),
        ("os_scan_cost", 10**39),
        ("os_scan_cost", float("nan")),
        ("step_limit", 2**31),
    ],
)
def test_numbers_that_nothing_is_worth_are_refused(network, section, value):
    data = yaml.safe_load(network.read_text())
    network.write_text(yaml.safe_dump({**data, section: value}))
    with pytest.raises(RedlineError, match="up to"):
        read_scenario(str(network))


def test_a_missing_section_is_named(network):
    data = yaml.safe_load(network.read_text())
    del data["firewall"]
    network.write_text(yaml.safe_dump(data))
    with pytest.raises(RedlineError, match="firewall is missing"):
        read_scenario(str(network))


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "!!python/object/apply:os.getpid []"])
def test_what_is_no_scenario_at_all_is_refused_in_one_line(network, text):
    network.write_text(text)
    with pytest.raises(RedlineError) as error:
        read_scenario(str(network))
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(RedlineError, match="no scenario file 'nowhere"):
        read_scenario("nowhere.yaml")


def test_without_pyyaml_the_extra_is_named(network, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(RedlineError, match=r"redline\[nasim\]"):
        read_scenario(str(network))
