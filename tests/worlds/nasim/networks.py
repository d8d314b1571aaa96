"""Random networks for tests, written as the original's own YAML."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

OS = ("linux", "windows", "bsd")
SERVICES = ("ssh", "ftp", "http", "smtp")
PROCESSES = ("tomcat", "cron")


def write_network(path: Path, seed: int, most_subnets: int = 5) -> None:
    """A scenario file with everything that the format allows: one-way links, odd costs, hosts in any order."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, random.integers(2, most_subnets + 1)).tolist()
    addresses = [(s + 1, k) for s, size in enumerate(sizes) for k in range(size)]
    random.shuffle(addresses)
    links = _links(random, len(sizes) + 1)
    goals = random.permutation(len(addresses))[: random.integers(1, 3)]
    scenario = {
        "subnets": sizes,
        "topology": links.tolist(),
        "sensitive_hosts": {_text(addresses[k]): float(random.choice([0.3, 10, 100.1])) for k in goals},
        "os": list(OS),
        "services": list(SERVICES),
        "processes": list(PROCESSES),
        "exploits": {f"e{k}": _attack(random, "service", SERVICES) for k in range(4)},
        "privilege_escalation": {f"pe{k}": _attack(random, "process", PROCESSES) for k in range(3)},
        **{f"{kind}_scan_cost": float(random.choice([0, 0.1, 1])) for kind in ("service", "os", "subnet", "process")},
        "host_configurations": {_text(address): _host(random, addresses) for address in map(tuple, addresses)},
        "firewall": {_text((a, b)): _some(random, SERVICES) for a, b in _linked(links)},
    }
    if random.random() < 0.7:
        scenario["step_limit"] = int(random.integers(20, 400))
    path.write_text(json.dumps(scenario))  # JSON is YAML


def _links(random: np.random.Generator, count: int) -> np.ndarray:
    links = (random.random((count, count)) < 0.5).astype(int)
    links |= (np.eye(count, dtype=int) * (random.random(count) < 0.9)).astype(int)
    links[random.integers(1, count), 0] = 1
    for subnet in range(1, count):  # most of them can be reached
        links[random.integers(1, count), subnet] = 1
    return links


def _linked(links: np.ndarray) -> list[tuple[int, int]]:
    pairs = zip(*np.nonzero(links), strict=True)
    return sorted({(int(x), int(y)) for a, b in pairs if a != b for x, y in ((a, b), (b, a))})


def _attack(random: np.random.Generator, by: str, names: tuple[str, ...]) -> dict:
    attack = {
        by: str(random.choice(names)),
        "os": str(random.choice([*OS, "None", "none"])),
        "prob": float(random.choice([0.3, 0.7, 0.95])),
        "cost": float(random.choice([0.1, 1, 2.7])),
        "access": ["user", "root", 1, 2][random.integers(4)],
    }
    if random.random() < 0.2:
        attack["req_access"] = int(random.integers(0, 3))
    return attack


def _host(random: np.random.Generator, addresses: list[tuple[int, int]]) -> dict:
    host = {"os": str(random.choice(OS)), "services": _some(random, SERVICES), "processes": _some(random, PROCESSES)}
    if random.random() < 0.4:
        host["firewall"] = {_text(addresses[random.integers(len(addresses))]): _some(random, SERVICES)}
    if random.random() < 0.3:
        host["value"] = float(random.choice([-0.7, 3, 12.3]))
    return host


def _some(random: np.random.Generator, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if random.random() < 0.6]


def _text(pair: tuple[int, int]) -> str:
    return str((int(pair[0]), int(pair[1])))
