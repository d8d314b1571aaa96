"""Networks of one's own: scenario files in YAML, as the original reads them.

What the original refuses is refused here too, in one line. Addresses are read as pairs of numbers and never evaluated.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import reprlib
from pathlib import Path
from typing import Any

from redline.errors import RedlineError, install
from redline.worlds.nasim.rules.scenario import (
    ROOT,
    USER,
    Address,
    AttackScenario,
    Escalation,
    Exploit,
    Host,
    ScanCosts,
)

SECTIONS: dict[str, type | tuple[type, ...]] = {
    "subnets": list,
    "topology": list,
    "sensitive_hosts": dict,
    "os": list,
    "services": list,
    "processes": list,
    "exploits": dict,
    "privilege_escalation": dict,
    "service_scan_cost": (int, float),
    "subnet_scan_cost": (int, float),
    "os_scan_cost": (int, float),
    "process_scan_cost": (int, float),
    "host_configurations": dict,
    "firewall": dict,
}
ACCESS = {"user": USER, "root": ROOT, USER: USER, ROOT: ROOT}
MOST_LETTERS = 200_000
"""In a scenario file: reading more would take seconds."""
MOST_NESTED, MOST_HOSTS, MOST_WORTH, MOST_STEPS = 30, 10_000, 1_000_000_000, 2**31 - 1
_PAIR = re.compile(r"\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)\s*")


class _Wrong(Exception):
    """Why a file is not a scenario."""


def read_scenario(path: str) -> AttackScenario:
    """The network in a file."""
    data = _load(path)
    try:
        return _scenario(Path(path).name.partition(".")[0], data)
    except _Wrong as error:
        raise RedlineError(f"{path} is not a scenario: {error}") from None


def _load(path: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise RedlineError(f"Scenario files need PyYAML: {install('nasim')}.") from error
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_LETTERS + 1)
        if len(text) > MOST_LETTERS:
            raise RedlineError(f"{path} is too long: scenarios of up to {MOST_LETTERS:,} letters are read.")
        if _nesting(text) > MOST_NESTED:
            raise RedlineError(f"{path} is not a scenario: its brackets are nested more than {MOST_NESTED} deep.")
        return yaml.safe_load(text)
    except FileNotFoundError:
        raise RedlineError(f"There is no scenario file {path!r}.") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise RedlineError(f"{path} cannot be read: {' '.join(str(error).split()):.300}") from error


def _nesting(text: str) -> int:
    """How deep brackets are nested at most. Time to read them grows with its square."""
    deltas = [1 if letter in "[{" else -1 for letter in text if letter in "[]{}"]
    return max(itertools.accumulate(deltas), default=0)


def _shown(value: object) -> str:
    """The beginning of a value: one of few letters in YAML may be immense."""
    return reprlib.repr(value)


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise _Wrong(why)


def _scenario(name: str, data: Any) -> AttackScenario:
    _check_sections(data)
    subnets = _subnets(data["subnets"])
    os, services, processes = (_names(data[key], key) for key in ("os", "services", "processes"))
    _require(bool(os and services and processes), "os, services and processes need at least one name each.")
    links = _links(data["topology"], len(subnets))
    sensitive = _sensitive(data["sensitive_hosts"], subnets)
    return AttackScenario(
        name=name,
        subnets=subnets,
        links=links,
        os=os,
        services=services,
        processes=processes,
        exploits=tuple(
            Exploit(each, *_attack(f"exploit {each}", given, "service", services, os))
            for each, given in data["exploits"].items()
        ),
        escalations=tuple(
            Escalation(each, *_attack(f"privilege escalation {each}", given, "process", processes, os))
            for each, given in data["privilege_escalation"].items()
        ),
        hosts=_hosts(data["host_configurations"], subnets, sensitive, os, services, processes),
        sensitive=tuple(sensitive),
        firewall=_firewall(data["firewall"], links, services),
        scan_costs=_scan_costs(data),
        step_limit=_step_limit(data.get("step_limit")),
    )


def _check_sections(data: Any) -> None:
    _require(isinstance(data, dict), "it has no sections such as subnets and topology.")
    missing = [name for name in SECTIONS if name not in data]
    _require(not missing, f"the section {', '.join(missing)} is missing.")
    unknown = [str(name) for name in data if name not in SECTIONS and name != "step_limit"]
    _require(not unknown, f"there is no section {', '.join(unknown)}. Known: {', '.join(SECTIONS)}, step_limit.")
    for name, kind in SECTIONS.items():
        wanted = {list: "a list", dict: "a mapping"}.get(kind, "a number")  # type: ignore[call-overload]
        _require(isinstance(data[name], kind), f"{name} must be {wanted}, not {_shown(data[name])}.")


def _subnets(sizes: list[Any]) -> tuple[int, ...]:
    _require(bool(sizes), "there are no subnets. Write for example subnets: [1, 1, 5].")
    for size in sizes:
        _require(
            type(size) is int and size > 0, f"{_shown(size)} hosts cannot be in a subnet. Write a whole number above 0."
        )
    _require(sum(sizes) <= MOST_HOSTS, f"it has {sum(sizes):,} hosts. Networks of up to {MOST_HOSTS:,} are read.")
    return (1, *sizes)


def _names(given: Any, what: str) -> tuple[str, ...]:
    """Names in a list, each once."""
    _require(isinstance(given, list), f"{what} must be a list, not {_shown(given)}.")
    for name in given:
        _require(isinstance(name, str), f"{_shown(name)} in {what} is not a name. Write it in quotes.")
    _require(len(set(given)) == len(given), f"{what} has a name twice: {', '.join(given)}.")
    return tuple(given)


def _known(given: Any, known: tuple[str, ...], what: str) -> frozenset[str]:
    """Names in a list, each once and all of them declared."""
    names = _names(given, what)
    for name in names:
        _require(name in known, f"{what} has {_shown(name)}, which is not one of {', '.join(known)}.")
    return frozenset(names)


def _links(rows: list[Any], count: int) -> frozenset[tuple[int, int]]:
    fits = len(rows) == count and all(isinstance(row, list) and len(row) == count for row in rows)
    _require(fits, f"topology must have {count} rows of {count} numbers, the internet's first.")
    for row in rows:
        for link in row:
            _require(isinstance(link, int) and link in (0, 1), f"topology has {_shown(link)}. Write 1 (linked) or 0.")
    return frozenset((a, b) for a, row in enumerate(rows) for b, link in enumerate(row) if link)


def _pair(given: Any, what: str) -> tuple[int, int]:
    match = _PAIR.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        raise _Wrong(f"{_shown(given)} in {what} is not a pair. Write for example (1, 0).")
    return int(match[1]), int(match[2])


def _address(given: Any, subnets: tuple[int, ...], what: str) -> Address:
    subnet, number = _pair(given, what)
    exists = 0 < subnet < len(subnets) and number < subnets[subnet]
    _require(exists, f"{what} has {given}, but subnets tells of no such host.")
    return subnet, number


def _sensitive(given: dict[Any, Any], subnets: tuple[int, ...]) -> dict[Address, float]:
    _require(bool(given), "sensitive_hosts is empty, so there is nothing to win.")
    found = {_address(key, subnets, "sensitive_hosts"): value for key, value in given.items()}
    _require(len(found) == len(given), "sensitive_hosts has an address twice.")
    for address, value in found.items():
        _require(
            _is_number(value) and value > 0,
            f"the value {_shown(value)} of {address} is not a number above 0, up to {MOST_WORTH:,}.",
        )
    return {address: float(value) for address, value in found.items()}


def _is_number(value: Any) -> bool:
    """Whether it is one that counts exactly enough among others: nothing is worth, or costs, more than `MOST_WORTH`."""
    return isinstance(value, int | float) and abs(value) <= MOST_WORTH


def _attack(
    what: str, given: Any, by: str, known: tuple[str, ...], systems: tuple[str, ...]
) -> tuple[str, str | None, float, float, int, int]:
    """The service or process that an attack uses, its system, chance, cost, and the access it gives and needs."""
    _require(isinstance(given, dict), f"{what} must be a mapping, not {_shown(given)}.")
    for key in (by, "os", "prob", "cost", "access"):
        _require(key in given, f"{what} has no {key}.")
    used, system, prob, cost, access = (given[key] for key in (by, "os", "prob", "cost", "access"))
    _require(used in known, f"{what} uses the {by} {_shown(used)}, which is not one of {', '.join(known)}.")
    everywhere = isinstance(system, str) and system.lower() == "none"
    _require(
        everywhere or system in systems,
        f"{what} has the os {_shown(system)}. Write None or one of {', '.join(systems)}.",
    )
    _require(_is_number(prob) and 0 <= prob <= 1, f"{what} has the prob {_shown(prob)}. Write a number from 0 to 1.")
    _require(
        _is_number(cost) and cost > 0,
        f"{what} has the cost {_shown(cost)}. Write a number above 0, up to {MOST_WORTH:,}.",
    )
    _require(
        isinstance(access, str | int) and access in ACCESS,
        f"{what} has the access {_shown(access)}. Write user or root.",
    )
    needs = given.get("req_access", USER)  # the original hands it on, though it does not mention it
    _require(type(needs) is int and 0 <= needs <= ROOT, f"{what} has the req_access {_shown(needs)}. Write 1 or 2.")
    return used, None if everywhere else system, prob, cost, ACCESS[access], needs


def _hosts(
    given: dict[Any, Any],
    subnets: tuple[int, ...],
    sensitive: dict[Address, float],
    os: tuple[str, ...],
    services: tuple[str, ...],
    processes: tuple[str, ...],
) -> tuple[Host, ...]:
    """All hosts, in the order of the file."""
    hosts = tuple(
        _host(_address(key, subnets, "host_configurations"), config, subnets, os, services, processes)
        for key, config in given.items()
    )
    addresses = {host.address for host in hosts}
    wanted = [(s, k) for s, size in enumerate(subnets) for k in range(size) if s]
    lacking = [address for address in wanted if address not in addresses]
    _require(not lacking, f"host_configurations lacks {', '.join(map(str, lacking))}.")
    _require(len(hosts) == len(wanted), "host_configurations has a host twice.")
    return tuple(dataclasses.replace(host, value=sensitive.get(host.address, host.value)) for host in hosts)


def _host(
    address: Address,
    config: Any,
    subnets: tuple[int, ...],
    os: tuple[str, ...],
    services: tuple[str, ...],
    processes: tuple[str, ...],
) -> Host:
    what = f"host {address}"
    _require(isinstance(config, dict), f"{what} must be a mapping, not {_shown(config)}.")
    for part in ("os", "services", "processes"):
        _require(part in config, f"{what} has no {part}.")
    system, value = config["os"], config.get("value", 0)
    _require(system in os, f"{what} has the os {_shown(system)}, which is not one of {', '.join(os)}.")
    _require(_is_number(value), f"{what} has the value {_shown(value)}, which is not a number up to {MOST_WORTH:,}.")
    _check_host_firewall(config.get("firewall", {}), subnets, services, what)
    runs = _known(config["services"], services, f"{what}: services")
    also = _known(config["processes"], processes, f"{what}: processes")
    return Host(address, system, runs, also, float(value))


def _check_host_firewall(given: Any, subnets: tuple[int, ...], services: tuple[str, ...], what: str) -> None:
    """A host's own firewall must be right, and does nothing: the original looks it up by a name that no host has."""
    _require(isinstance(given, dict), f"{what}: firewall must be a mapping, not {_shown(given)}.")
    for key, shut in given.items():
        _address(key, subnets, f"{what}: firewall")
        _known(shut, services, f"{what}: firewall")


def _firewall(
    given: dict[Any, Any], links: frozenset[tuple[int, int]], services: tuple[str, ...]
) -> dict[tuple[int, int], frozenset[str]]:
    found = {_pair(key, "firewall"): _known(let_through, services, "firewall") for key, let_through in given.items()}
    for source, target in sorted(links):
        for link in ((source, target), (target, source)):
            _require(source == target or link in found, f"firewall has no {link}, though these subnets are linked.")
    return found


def _scan_costs(data: dict[str, Any]) -> ScanCosts:
    costs = {kind: data[f"{kind}_scan_cost"] for kind in ("service", "os", "subnet", "process")}
    for kind, cost in costs.items():
        _require(
            _is_number(cost) and cost >= 0,
            f"{kind}_scan_cost is {_shown(cost)}. Write a number of at least 0, up to {MOST_WORTH:,}.",
        )
    return ScanCosts(**costs)


def _step_limit(given: Any) -> int | None:
    if given is None:
        return None
    is_count = isinstance(given, int) and 0 < given <= MOST_STEPS
    _require(is_count, f"step_limit is {_shown(given)}. Write a whole number above 0, up to {MOST_STEPS:,}.")
    return int(given)
