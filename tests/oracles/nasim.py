"""The facts that the original Network Attack Simulator (`nasim` on PyPI) knows about a network, in our words."""

from __future__ import annotations

from nasim.scenarios import Scenario

from redline.worlds.nasim.options import NetworkOptions
from redline.worlds.nasim.original import OriginalNasim
from redline.worlds.nasim.rules.scenario import (
    Address,
    AttackScenario,
    Escalation,
    Exploit,
    Host,
    ScanCosts,
)


def facts(name: str, network_seed: int = 0) -> AttackScenario:
    """Of the network that a name means to the original; firewalls that let nothing through are left out."""
    return facts_of(OriginalNasim(name, NetworkOptions(network_seed=network_seed)).env.scenario)


def facts_of(scenario: Scenario) -> AttackScenario:
    """Of a scenario that the original has made."""
    return AttackScenario(
        name=scenario.name,
        subnets=tuple(scenario.subnets),
        links=frozenset((a, b) for a, row in enumerate(scenario.topology) for b, link in enumerate(row) if link),
        os=tuple(scenario.os),
        services=tuple(scenario.services),
        processes=tuple(scenario.processes),
        exploits=tuple(_exploit(name, each) for name, each in scenario.exploits.items()),
        escalations=tuple(_escalation(name, each) for name, each in scenario.privescs.items()),
        hosts=tuple(_host(address, host) for address, host in scenario.hosts.items()),
        sensitive=tuple(scenario.sensitive_hosts),
        firewall={link: frozenset(map(str, services)) for link, services in scenario.firewall.items() if services},
        scan_costs=ScanCosts(
            scenario.service_scan_cost, scenario.os_scan_cost, scenario.subnet_scan_cost, scenario.process_scan_cost
        ),
        step_limit=scenario.step_limit,
    )


def _exploit(name: str, each: dict) -> Exploit:
    rest = (each["os"], float(each["prob"]), each["cost"], int(each["access"]), each.get("req_access", 1))
    return Exploit(name, str(each["service"]), *rest)


def _escalation(name: str, each: dict) -> Escalation:
    rest = (each["os"], float(each["prob"]), each["cost"], int(each["access"]), each.get("req_access", 1))
    return Escalation(name, str(each["process"]), *rest)


def _host(address: Address, host: object) -> Host:
    def running(of: dict[str, bool]) -> frozenset[str]:
        return frozenset(name for name, runs in of.items() if runs)

    (os,) = running(host.os)  # type: ignore[attr-defined]
    services, processes = running(host.services), running(host.processes)  # type: ignore[attr-defined]
    return Host(address, os, services, processes, host.value, host.discovery_value)  # type: ignore[attr-defined]
