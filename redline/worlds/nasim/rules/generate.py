"""Networks made from a seed, as large as one likes: a demilitarised subnet, a sensitive one, and a tree of users' subnets.

Numbers are drawn from numpy's own legacy generator in the order in which the original draws them, so that equal seeds
give equal networks. There is one exception: which services a firewall lets through is drawn from a set, and the
original lists that set in an order that differs from one Python process to the next. Here services stand in order.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from redline.errors import RedlineError
from redline.worlds.nasim.rules.scenario import (
    INTERNET,
    ROOT,
    USER,
    Address,
    AttackScenario,
    Escalation,
    Exploit,
    Host,
)

DMZ, SENSITIVE, FIRST_USER = 1, 2, 3  # subnets
USER_SUBNET_SIZE = 5
HOSTS_PER_DMZ_HOST = 40
VULNERABLE_TRIES = 5
CONCENTRATION = 2.0  # how much hosts resemble each other: of the Dirichlet processes that configure them
SERVICES_PER_HOST = 1.0
SENSITIVE_VALUE, HOST_VALUE, DISCOVERY_VALUE = 100.0, 1.0, 1.0

T = TypeVar("T")


@dataclass(frozen=True)
class Size:
    """How large a generated network is."""

    hosts: int
    os: int
    services: int
    processes: int
    restrictiveness: int
    """Services that a firewall lets through at most."""
    exploits: int | None = None
    """None has one for each service."""
    random_goal: bool = False
    """Let the seed choose the users' host to reach, instead of the last one."""
    step_limit: int = 1000


SIZES = {
    "tiny-gen": Size(3, 1, 1, 1, 1),
    "tiny-gen-rgoal": Size(3, 1, 1, 1, 1, random_goal=True),
    "small-gen": Size(8, 2, 3, 2, 2),
    "small-gen-rgoal": Size(8, 2, 3, 2, 2, random_goal=True),
    "medium-gen": Size(16, 2, 5, 2, 3, step_limit=2000),
    "large-gen": Size(23, 3, 7, 3, 3, step_limit=5000),
    "huge-gen": Size(38, 4, 10, 4, 3, step_limit=10_000),
    "pocp-1-gen": Size(35, 2, 50, 2, 5, exploits=60, step_limit=30_000),
    "pocp-2-gen": Size(95, 3, 10, 3, 5, exploits=30, step_limit=30_000),
}
"""The generated benchmark networks by name."""


def generate(name: str, size: Size, seed: int) -> AttackScenario:
    """The network of a seed."""
    return _Generator(name, size, seed).network()


class _Generator:
    """Draws one network, part by part."""

    def __init__(self, name: str, size: Size, seed: int) -> None:
        self.name, self.size, self.seed = name, size, seed
        self.random = np.random.RandomState(seed)
        self.subnets = subnet_sizes(size.hosts)
        self.os = [f"os_{k}" for k in range(size.os)]
        self.services = [f"srv_{k}" for k in range(size.services)]
        self.processes = [f"proc_{k}" for k in range(size.processes)]

    def network(self) -> AttackScenario:
        """Draw everything, in the original's order."""
        links = subnet_links(len(self.subnets))
        exploits = self.draw_exploits(self.size.exploits or self.size.services)
        escalations = self.draw_escalations(self.size.processes)
        sensitive = self.draw_sensitive()
        hosts = self.draw_hosts(sensitive)
        hosts = self.make_vulnerable(hosts, exploits, escalations, sensitive)
        return AttackScenario(
            name=self.name,
            subnets=self.subnets,
            links=links,
            os=tuple(self.os),
            services=tuple(self.services),
            processes=tuple(self.processes),
            exploits=exploits,
            escalations=escalations,
            hosts=tuple(hosts.values()),
            sensitive=sensitive,
            firewall=self.draw_firewall(links, hosts, exploits),
            step_limit=self.size.step_limit,
        )

    def choose(self, options: list[T]) -> T:
        """One of them, all alike."""
        return options[self.random.randint(len(options))]

    def draw_exploits(self, count: int) -> tuple[Exploit, ...]:
        """As many different ones as asked for; each chance of success is low, middling or high."""
        if count == 1:  # a single exploit that rarely works would make for endless attacks
            probs = self.random.choice([0.6, 0.9], count, p=[0.5, 0.5])
        else:
            probs = self.random.choice([0.3, 0.6, 0.9], count, p=[0.2, 0.4, 0.4])
        exploits: dict[str, Exploit] = {}
        while len(exploits) < count:
            service, os = self.choose(self.services), self.choose([*self.os, None])
            access = int(self.random.randint(USER, ROOT + 1))
            name = _attack_name("e", service, os)
            if name not in exploits:
                exploits[name] = Exploit(name, service, os, float(probs[len(exploits)]), 1, access)
        return tuple(exploits.values())

    def draw_escalations(self, count: int) -> tuple[Escalation, ...]:
        """Different ones, so that on every system at least one works."""
        systems = self.draw_systems(count)
        escalations: dict[str, Escalation] = {}
        while len(escalations) < count:
            process, os = self.choose(self.processes), systems[len(escalations)]
            name = _attack_name("pe", process, os)
            if name not in escalations:
                escalations[name] = Escalation(name, process, os, 1.0, 1, ROOT)
        return tuple(escalations.values())

    def draw_systems(self, count: int) -> list[str | None]:
        """A system for each escalation, None being all: together they cover every system."""
        options = [*self.os, None]
        if count < len(self.os):
            return [None, *(options[k] for k in self.random.randint(len(options), size=count - 1))]
        while True:
            systems = [options[k] for k in self.random.randint(len(options), size=count)]
            if None in systems or set(self.os) <= set(systems):
                return systems

    def draw_sensitive(self) -> tuple[Address, ...]:
        """The first sensitive host, and one of the users'."""
        last = len(self.subnets) - 1
        goal = (last, self.subnets[last] - 1)
        if self.size.random_goal:
            subnet = int(self.random.randint(FIRST_USER, len(self.subnets)))
            goal = (subnet, int(self.random.randint(self.subnets[subnet])))
        return (SENSITIVE, 0), goal

    def draw_hosts(self, sensitive: tuple[Address, ...]) -> dict[Address, Host]:
        """All hosts by address; the more there are, the likelier a new one is a copy of one before."""
        addresses = [(s, k) for s, size in enumerate(self.subnets) if s != INTERNET for k in range(size)]
        drawn: list[Host] = []
        services: list[int] = []
        processes: list[int] = []
        for address in addresses:
            value = SENSITIVE_VALUE if address in sensitive else HOST_VALUE
            is_first = not drawn
            if is_first or self.random.rand() < CONCENTRATION / (CONCENTRATION + len(drawn) - 1):
                host = self.draw_host(address, value, services, processes, is_first)
            else:
                host = dataclasses.replace(self.choose(drawn), address=address, value=value)
            drawn.append(host)
        return {host.address: host for host in drawn}

    def draw_host(
        self, address: Address, value: float, services: list[int], processes: list[int], is_first: bool
    ) -> Host:
        """A host unlike those before it."""
        if not is_first:
            self.random.rand()  # whether to copy a system drawn before: at this concentration the original never does
        os = self.choose(self.os)
        runs = self.draw_running(self.services, services)
        return Host(address, os, runs, self.draw_running(self.processes, processes), value, DISCOVERY_VALUE)

    def draw_running(self, names: list[str], drawn_before: list[int]) -> frozenset[str]:
        """At least one of the names; later ones may copy what any host drew before."""
        drawn = []
        for k in range(max(int(self.random.poisson(SERVICES_PER_HOST)), 1)):
            if k == 0 or self.random.rand() < CONCENTRATION / (CONCENTRATION + k - 1):
                drawn.append(int(self.random.randint(len(names))))
            else:
                drawn.append(self.choose(drawn_before))
            drawn_before.append(drawn[-1])
        return frozenset(names[k] for k in drawn)

    def make_vulnerable(
        self,
        hosts: dict[Address, Host],
        exploits: tuple[Exploit, ...],
        escalations: tuple[Escalation, ...],
        sensitive: tuple[Address, ...],
    ) -> dict[Address, Host]:
        """Hosts of which every sensitive one can be had as root, and in every subnet at least one."""
        hosts, open_subnets = dict(hosts), set()
        for address, host in hosts.items():
            if address in sensitive:
                if not is_vulnerable(host, exploits, escalations, ROOT):
                    hosts[address] = self.made_vulnerable(host, exploits, escalations, ROOT)
                open_subnets.add(address[0])
            elif address[0] not in open_subnets and is_vulnerable(host, exploits, escalations, USER):
                open_subnets.add(address[0])
        for subnet in range(DMZ, len(self.subnets)):
            if subnet not in open_subnets:
                address = (subnet, int(self.random.randint(self.subnets[subnet])))
                hosts[address] = self.made_vulnerable(hosts[address], exploits, escalations, USER)
        return hosts

    def made_vulnerable(
        self, host: Host, exploits: tuple[Exploit, ...], escalations: tuple[Escalation, ...], access: int
    ) -> Host:
        """The host with a service, and if need be a process, by which it can be had with this access."""
        for _ in range(VULNERABLE_TRIES):
            exploit = self.choose(list(exploits))
            host = dataclasses.replace(host, os=exploit.os or host.os, services=host.services | {exploit.service})
            if exploit.access >= access:
                return host
            fitting = [each for each in escalations if each.os in (None, host.os)]
            if fitting:
                return dataclasses.replace(host, processes=host.processes | {self.choose(fitting).process})
        raise RedlineError(
            f"Seed {self.seed} gives no {self.name} network that can be won: nothing escalates on the system of a "
            f"sensitive host. Try seed={self.seed + 1}."
        )

    def draw_firewall(
        self, links: frozenset[tuple[int, int]], hosts: dict[Address, Host], exploits: tuple[Exploit, ...]
    ) -> dict[tuple[int, int], frozenset[str]]:
        """Services let through, by link: all among users, else a few of those that can be attacked."""
        attackable: dict[int, set[str]] = {subnet: set() for subnet in range(len(self.subnets))}
        for host in hosts.values():
            attackable[host.address[0]] |= {exploit.service for exploit in exploits if _breaks_into(exploit, host)}
        firewall = {}
        for source, target in sorted(links):
            if source == target:
                continue
            if source > SENSITIVE and target > SENSITIVE:
                firewall[source, target] = frozenset(self.services)
            else:
                firewall[source, target] = self.draw_opening(attackable[target])
        return firewall

    def draw_opening(self, attackable: set[str]) -> frozenset[str]:
        """As many services as the firewalls' restrictiveness lets through."""
        left = [service for service in self.services if service in attackable]
        if len(left) < self.size.restrictiveness:
            return frozenset(left)
        return frozenset(left.pop(self.random.randint(len(left))) for _ in range(self.size.restrictiveness))


def subnet_sizes(num_hosts: int) -> tuple[int, ...]:
    """Hosts in each subnet: the internet, the demilitarised one, the sensitive one, and users' subnets of five."""
    dmz = -(-num_hosts // HOSTS_PER_DMZ_HOST)
    sensitive = -(-num_hosts // (HOSTS_PER_DMZ_HOST + 1))
    full, rest = divmod(num_hosts - dmz - sensitive, USER_SUBNET_SIZE)
    return (1, dmz, sensitive, *[USER_SUBNET_SIZE] * full, *([rest] if rest else []))


def subnet_links(num_subnets: int) -> frozenset[tuple[int, int]]:
    """The first three subnets are all linked, the first to the internet as well; users' subnets form a binary tree."""
    zones = (DMZ, SENSITIVE, FIRST_USER)
    links = {(a, b) for a in zones for b in zones} | {(INTERNET, INTERNET), (INTERNET, DMZ), (DMZ, INTERNET)}
    for subnet in range(FIRST_USER + 1, num_subnets):
        parent = (subnet - FIRST_USER - 1) // 2 + FIRST_USER
        links |= {(subnet, subnet), (subnet, parent), (parent, subnet)}
    return frozenset(links)


def is_vulnerable(host: Host, exploits: tuple[Exploit, ...], escalations: tuple[Escalation, ...], access: int) -> bool:
    """Whether a host can be had with this access; the original takes any escalation to be enough."""
    ways = [exploit for exploit in exploits if _breaks_into(exploit, host)]
    if any(exploit.access >= access for exploit in ways):
        return True
    return bool(ways) and any(each.process in host.processes and each.os in (None, host.os) for each in escalations)


def _breaks_into(exploit: Exploit, host: Host) -> bool:
    return exploit.service in host.services and exploit.os in (None, host.os)


def _attack_name(kind: str, by: str, os: str | None) -> str:
    return f"{kind}_{by}" if os is None else f"{kind}_{by}_{os}"
