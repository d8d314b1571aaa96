"""The scene of a penetration test: a network, all that runs on its hosts, and all that an attacker can try on them.

Everything here is fixed for the whole of an episode; what changes is in `state`. Subnet 0 is the internet, where the
attacker sits; it has no hosts. Hosts are listed in the order of their rows in the observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

NO_ACCESS, USER, ROOT = 0, 1, 2
INTERNET = 0

Address = tuple[int, int]
"""Subnet, and number in the subnet."""


@dataclass(frozen=True)
class Exploit:
    """A way into a host over the network, by a service that runs there."""

    name: str
    service: str
    os: str | None
    """The system it works on; None works on all."""
    prob: float
    cost: float
    access: int
    needs: int = USER
    """Access that a host must be held with to attack others from it."""


@dataclass(frozen=True)
class Escalation:
    """A way to more access on a host that is held already, by a process that runs there."""

    name: str
    process: str
    os: str | None
    prob: float
    cost: float
    access: int
    needs: int = USER


@dataclass(frozen=True)
class Host:
    """A computer and what runs on it."""

    address: Address
    os: str
    services: frozenset[str]
    processes: frozenset[str]
    value: float = 0.0
    """Paid once, for root access."""
    discovery_value: float = 0.0
    """Paid once, when a scan finds it."""


@dataclass(frozen=True)
class ScanCosts:
    """The cost of each kind of scan."""

    service: float = 1.0
    os: float = 1.0
    subnet: float = 1.0
    process: float = 1.0


@dataclass(frozen=True)
class AttackScenario:
    """A network to break into. The episode is won with root access to all `sensitive` hosts."""

    name: str
    subnets: tuple[int, ...]
    """Hosts in each; the first is the internet and counts as one."""
    links: frozenset[tuple[int, int]]
    """Subnets that are connected, from and to, each with itself included where it is."""
    os: tuple[str, ...]
    services: tuple[str, ...]
    processes: tuple[str, ...]
    exploits: tuple[Exploit, ...]
    escalations: tuple[Escalation, ...]
    hosts: tuple[Host, ...]
    sensitive: tuple[Address, ...]
    firewall: Mapping[tuple[int, int], frozenset[str]]
    """Services let through between two linked subnets, from and to."""
    scan_costs: ScanCosts = field(default_factory=ScanCosts)
    step_limit: int | None = None
    max_score: float | None = None
    """The return of the best episode without bad luck, where it is known."""

    @property
    def num_actions(self) -> int:
        """Four scans, all exploits and all escalations, for each host."""
        return len(self.hosts) * (4 + len(self.exploits) + len(self.escalations))

    @property
    def address_bounds(self) -> tuple[int, int]:
        """Places that the two parts of an address take in an observation."""
        return len(self.subnets), max(self.subnets)

    @cached_property
    def public(self) -> frozenset[int]:
        """Subnets that the internet reaches."""
        return frozenset(source for source, target in self.links if target == INTERNET and source != INTERNET)

    def linked(self, subnet: int) -> frozenset[int]:
        """Subnets that can be seen from one."""
        return frozenset(target for source, target in self.links if source == subnet)

    def scan_sources(self, target: int) -> frozenset[int]:
        """Subnets from which hosts in `target` can be scanned."""
        return frozenset(source for source, to in self.links if to == target)

    def exploit_sources(self, target: int, service: str) -> frozenset[int]:
        """Subnets from which a service in `target` can be attacked: no firewall stands within a subnet."""
        open_to = (s for s in self.scan_sources(target) if service in self.firewall.get((s, target), ()))
        return frozenset((target, *open_to))
