"""A scenario as arrays, the way the kernel reads it: one row per action with all that never changes worked out.

Reachability and discovery come to whole subnets at once, so both are kept as masks with a bit per subnet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.worlds.nasim.rules.scenario import (
    INTERNET,
    ROOT,
    USER,
    AttackScenario,
    Escalation,
    Exploit,
    Host,
    ScanCosts,
)

FLAGS = ("success", "connection_error", "permission_error", "undefined_error")
"""How an action ended, in the row of an observation behind all hosts."""
START, SERVICE_SCAN, OS_SCAN, EXPLOIT, PROCESS_SCAN, SUBNET_SCAN, ESCALATION = range(7)
"""Kinds of actions; the first three of them reach out to a host from another. Before the first action there is START."""

MOST_SUBNETS = 62  # bits of a mask that stays positive
HOSTS_PER_WORD = 31  # two bits of access each, likewise
KIND_SHIFT, ACCESS_SHIFT, HOST_SHIFT, HEADER_BITS = 4, 7, 9, 24  # of an observation, behind its four flags

# every number is 64 bits wide: narrower ones would wrap around when interpreted, and only then
ACTION = np.dtype(
    [
        ("kind", np.int64),
        ("host", np.int64),
        ("bit", np.int64),  # of the host's subnet in a mask
        ("word", np.int64),  # where the access to the host is kept
        ("shift", np.int64),
        ("public", np.int64),  # 1 if the internet reaches the host's subnet
        ("sources", np.int64),  # mask of subnets from which it is permitted
        ("linked", np.int64),  # mask of subnets that are seen from the host
        ("works", np.int64),  # 1 if the service or process it needs runs there, on the right system
        ("access", np.int64),
        ("needs", np.int64),
        ("sensitive", np.int64),
        ("header", np.int64),  # how an observation of its success begins
        ("prob", np.float64),
        ("cost", np.float64),
        ("short_cost", np.float32),
        ("value", np.float32),
    ]
)


class ScenarioColumns(NamedTuple):
    """Where the parts of a host's row begin in an observation; the address comes first."""

    compromised: int
    reachable: int
    discovered: int
    value: int
    discovery_value: int
    access: int
    os: int
    services: int
    processes: int
    end: int


class Places(NamedTuple):
    """Where three masks of subnets are kept in an observation: word and shift of each."""

    word: tuple[int, int, int]
    shift: tuple[int, int, int]
    subnets: int
    """A mask of all subnets, to read them back."""


class NetworkTables(NamedTuple):
    """A scenario as the kernel reads it."""

    actions: np.recarray  # ACTION [actions]
    subnet_of: np.ndarray  # int64 [H]
    discovery: np.ndarray  # float32 [H]
    rows: np.ndarray  # float32 [H, columns]  all that is to be known about each host, beside what changes
    columns: ScenarioColumns
    places: Places
    public: int  # mask of subnets
    goals: int  # hosts to become root on
    step_limit: int  # 0 has none
    access_words: int
    fully_obs: bool


def tabulate(scenario: AttackScenario, fully_obs: bool) -> NetworkTables:
    """The arrays of a scenario."""
    if len(scenario.subnets) > MOST_SUBNETS:
        raise RedlineError(
            f"{scenario.name} has {len(scenario.subnets) - 1} subnets, and there can be at most {MOST_SUBNETS - 1}. "
            "Merge some of them."
        )
    return NetworkTables(
        actions=_actions(scenario),
        subnet_of=np.array([host.address[0] for host in scenario.hosts], np.int64),
        discovery=np.array([host.discovery_value for host in scenario.hosts], np.float32),
        rows=np.array([_row(scenario, host) for host in scenario.hosts], np.float32),
        columns=columns_of(scenario),
        places=_places(len(scenario.subnets), fully_obs),
        public=_mask(scenario.public),
        goals=len(scenario.sensitive),
        step_limit=scenario.step_limit or 0,
        access_words=-(-len(scenario.hosts) // HOSTS_PER_WORD),
        fully_obs=fully_obs,
    )


def _mask(subnets: Iterable[int]) -> int:
    return sum(1 << subnet for subnet in subnets)


def columns_of(scenario: AttackScenario) -> ScenarioColumns:
    """Where things stand in a host's row."""
    first = sum(scenario.address_bounds)
    os = first + 6
    services = os + len(scenario.os)
    processes = services + len(scenario.services)
    return ScenarioColumns(
        compromised=first,
        reachable=first + 1,
        discovered=first + 2,
        value=first + 3,
        discovery_value=first + 4,
        access=first + 5,
        os=os,
        services=services,
        processes=processes,
        end=processes + len(scenario.processes),
    )


def _row(scenario: AttackScenario, host: Host) -> list[float]:
    subnet, number = host.address
    subnets, numbers = scenario.address_bounds
    return [
        *(float(subnet == k) for k in range(subnets)),
        *(float(number == k) for k in range(numbers)),
        *(0.0, 0.0, 0.0, host.value, host.discovery_value, 0.0),
        *(float(name == host.os) for name in scenario.os),
        *(float(name in host.services) for name in scenario.services),
        *(float(name in host.processes) for name in scenario.processes),
    ]


def _places(num_subnets: int, fully_obs: bool) -> Places:
    """Side by side behind the header if there is room for them, else in words of their own."""
    begin = KIND_SHIFT if fully_obs else HEADER_BITS
    subnets = (1 << num_subnets) - 1
    if begin + 3 * num_subnets < 64:
        return Places((0, 0, 0), (begin, begin + num_subnets, begin + 2 * num_subnets), subnets)
    return Places((1, 2, 3), (0, 0, 0), subnets)


def _actions(scenario: AttackScenario) -> np.recarray:
    """All actions, host by host: scans, exploits, escalations."""
    rows = [row for number in range(len(scenario.hosts)) for row in _actions_on(scenario, number)]
    table = np.zeros(len(rows), ACTION)
    for i, row in enumerate(rows):
        for name, value in row.items():
            table[name][i] = value
    table["short_cost"] = table["cost"]
    table["header"] = table["kind"] << KIND_SHIFT | table["host"] << HOST_SHIFT
    return table.view(np.recarray)


def _actions_on(scenario: AttackScenario, number: int) -> list[dict[str, float]]:
    host, common = scenario.hosts[number], _common(scenario, number)
    exploits = [_exploit(scenario, host, each) for each in scenario.exploits]
    escalations = [_escalation(host, each) for each in scenario.escalations]
    return [common | action for action in (*_scans(scenario.scan_costs), *exploits, *escalations)]


def _common(scenario: AttackScenario, number: int) -> dict[str, float]:
    """The part that all actions on a host have in common, where they do not say otherwise."""
    host = scenario.hosts[number]
    subnet = host.address[0]
    return {
        "host": number,
        "bit": 1 << subnet,
        "word": number // HOSTS_PER_WORD,
        "shift": 2 * (number % HOSTS_PER_WORD),
        "public": subnet in scenario.public,
        "sources": _mask(scenario.scan_sources(subnet)),
        "linked": _mask(scenario.linked(subnet) - {INTERNET}),  # nobody is found there
        "needs": USER,
        "prob": 1.0,
        "sensitive": host.address in scenario.sensitive,
        "value": host.value,
    }


def _scans(costs: ScanCosts) -> list[dict[str, float]]:
    return [
        {"kind": SERVICE_SCAN, "cost": costs.service},
        {"kind": OS_SCAN, "cost": costs.os},
        {"kind": SUBNET_SCAN, "cost": costs.subnet},
        {"kind": PROCESS_SCAN, "cost": costs.process},
    ]


def _exploit(scenario: AttackScenario, host: Host, exploit: Exploit) -> dict[str, float]:
    sources = scenario.exploit_sources(host.address[0], exploit.service)
    works = exploit.service in host.services and exploit.os in (None, host.os)
    return {"kind": EXPLOIT, "sources": _mask(sources), "works": works, **_attack(exploit)}


def _escalation(host: Host, escalation: Escalation) -> dict[str, float]:
    works = escalation.process in host.processes and escalation.os in (None, host.os)
    return {"kind": ESCALATION, "works": works, **_attack(escalation)}


def _attack(attack: Exploit | Escalation) -> dict[str, float]:
    return {"prob": attack.prob, "cost": attack.cost, "access": attack.access, "needs": attack.needs}


def action_names(scenario: AttackScenario) -> list[str]:
    """A name for each action, such as `e_ssh 2.0`."""
    scans = ["service scan", "os scan", "subnet scan", "process scan"]
    names = [*scans, *(each.name for each in scenario.exploits), *(each.name for each in scenario.escalations)]
    return [f"{name} {host.address[0]}.{host.address[1]}" for host in scenario.hosts for name in names]


def observation_names(scenario: AttackScenario) -> list[str]:
    """A name for each number of an observation: a row for each host, such as `2.0 runs ssh`, and one for the flags."""
    subnets, numbers = scenario.address_bounds
    own = [*(f"in subnet {k}" for k in range(subnets)), *(f"is number {k}" for k in range(numbers))]
    own += ["held", "reachable", "discovered", "value", "discovery value", "access"]
    own += [*(f"is {name}" for name in scenario.os), *(f"runs {name}" for name in scenario.services)]
    own += [f"runs {name}" for name in scenario.processes]
    rows = [f"{host.address[0]}.{host.address[1]} {what}" for host in scenario.hosts for what in own]
    flags = [name.replace("_", " ") for name in FLAGS]
    return [*rows, *flags, *(f"unused {k}" for k in range(len(own) - len(flags)))]


def value_bounds(scenario: AttackScenario) -> tuple[float, float]:
    """The least and the greatest number that an observation can have, as the original declares them."""
    values = [value for host in scenario.hosts for value in (host.value, host.discovery_value)]
    return min(0, *values), max(1, *values, ROOT, *scenario.address_bounds)
