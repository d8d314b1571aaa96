"""`redline envs nasim`: the networks that have a name, and what any one of them is made of."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from redline.worlds.naming import with_query
from redline.worlds.nasim.instances import PREFIX, find_network
from redline.worlds.nasim.options import NetworkOptions
from redline.worlds.nasim.rules.generate import SIZES
from redline.worlds.nasim.rules.observe import observation_size
from redline.worlds.nasim.rules.scenario import AttackScenario, Escalation, Exploit
from redline.worlds.nasim.rules.tables import tabulate
from redline.worlds.nasim.scenarios import FIXED
from redline.worlds.options import describe_options
from redline.worlds.world import Answer, Command, Say


def run(name: str, options: NetworkOptions, say: Say) -> Answer:
    """All networks that have a name, or the hosts of one."""
    return _one_network(name, options) if name.startswith(PREFIX) else _all_networks(options)


SHOW = Command(NetworkOptions, run)


def _all_networks(options: NetworkOptions) -> Answer:
    networks = [_facts(find_network(name, options)) for name in (*FIXED, *SIZES)]
    table = Table(title=f"Networks by name (generated ones of seed {options.network_seed})")
    for column in networks[0]:
        table.add_column(column.replace("_", " "), justify="left" if column == "name" else "right")
    for facts in networks:
        table.add_row(*("" if fact is None else str(fact) for fact in facts.values()))
    described = describe_options(NetworkOptions)
    texts = [f"  --{option['name'].replace('_', '-')} {option['default']}  {option['about']}" for option in described]
    return Answer({"networks": networks, "options": described}, [table, *texts])


def _one_network(name: str, options: NetworkOptions) -> Answer:
    bare, more = with_query(name, {})
    network = find_network(bare, NetworkOptions(**{**vars(options), **more}))
    table = Table(title=f"Hosts of {bare}")
    for column in ("host", "os", "services", "processes", "value"):
        table.add_column(column, justify="right" if column == "value" else "left")
    hosts = _hosts(network)
    for host in hosts:
        table.add_row(*(", ".join(fact) if isinstance(fact, list) else str(fact) for fact in host.values()))
    attacks = [*map(_attack, network.exploits), *map(_attack, network.escalations)]
    sentences = [
        f"{attack['name']}: {attack['os'] or 'any os'}, {attack['prob']:.0%}, costs {attack['cost']:g}"
        for attack in attacks
    ]
    facts = _facts(network)
    data = {**facts, "host_list": hosts, "attacks": attacks}
    return Answer(data, [table, *sentences, ", ".join(f"{key} {value}" for key, value in facts.items())])


def _facts(network: AttackScenario) -> dict[str, Any]:
    return {
        "name": PREFIX + network.name,
        "subnets": len(network.subnets) - 1,
        "hosts": len(network.hosts),
        "actions": network.num_actions,
        "numbers_observed": observation_size(tabulate(network, fully_obs=False)),
        "step_limit": network.step_limit,
        "max_score": network.max_score,
    }


def _hosts(network: AttackScenario) -> list[dict[str, Any]]:
    return [
        {
            "host": "{}.{}".format(*host.address),
            "os": host.os,
            "services": sorted(host.services),
            "processes": sorted(host.processes),
            "value": host.value,
        }
        for host in network.hosts
    ]


def _attack(attack: Exploit | Escalation) -> dict[str, Any]:
    return {"name": attack.name, "os": attack.os, "prob": attack.prob, "cost": attack.cost, "access": attack.access}
