"""Readers of what worlds are made of: nets, shops, tools, networks, schedules, and names with options behind them."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.fuzz.mutate import NUMBERS, WORDS, mutated_bytes, mutated_json
from tests.fuzz.reader import DATA, HERE, SEEDS, Reader, a_file, a_folder, bytes_of, encoded, json_of

PETRI = HERE.parents[1] / "redline/worlds/petri/data"
NETS = sorted((DATA / "petri" / "pnml").glob("*.pnml"))


def pnml() -> Reader:
    from redline.worlds.petri.pnml import PnmlNet, build_pnml
    from redline.worlds.petri.rules.tables import tabulate

    def read(data: bytes) -> None:
        with a_file(data, ".pnml") as path:
            tabulate(build_pnml(PnmlNet(str(path))))

    contents = [file.read_bytes() for file in NETS]
    change = bytes_of(contents)
    return Reader(lambda rng: _with_pages(rng, rng.choice(contents)) if rng.random() < 0.01 else change(rng), read)


def _with_pages(rng: random.Random, data: bytes) -> bytes:
    """A net with pages in pages behind one of its elements."""
    depth = rng.choice((10, 1000, 20_000))
    k = rng.choice([place + 1 for place, letter in enumerate(data) if letter == ord(">")])
    return data[:k] + b"<page>" * depth + b"</page>" * depth + data[k:]


def timings() -> Reader:
    from redline.worlds.petri.pnml import PnmlNet, build_pnml
    from redline.worlds.petri.rules.tables import tabulate

    net = NETS[0]
    names = [transition.name for transition in build_pnml(PnmlNet(str(net))).transitions]
    data = encoded({name: 2 + k for k, name in enumerate(names)})

    def draw(rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            return mutated_bytes(rng, data, [data])
        return encoded(mutated_json(rng, json.loads(data)))

    def read(given: bytes) -> None:
        with a_file(given, ".timing.json") as path:
            tabulate(build_pnml(PnmlNet(str(net), timing=str(path))))

    return Reader(draw, read)


def job_shops() -> Reader:
    from redline.worlds.petri.job_shop import JobShop, build_shop
    from redline.worlds.petri.rules.tables import tabulate

    def read(data: bytes) -> None:
        with a_file(data, ".txt") as path:
            tabulate(build_shop(JobShop(str(path))))

    return Reader(bytes_of([file.read_bytes() for file in sorted(SEEDS.glob("*.shop"))]), read)


def _tool_reader(values: list[Any]) -> Reader:
    from redline.worlds.petri.cluster_tool import ClusterTool, build_tool
    from redline.worlds.petri.rules.tables import tabulate

    contents = [encoded(value) for value in values]

    def draw(rng: random.Random) -> bytes:
        if rng.random() < 0.2:
            return mutated_bytes(rng, rng.choice(contents), contents)
        return encoded(mutated_json(rng, rng.choice(values)))

    def read(data: bytes) -> None:
        with a_file(data, ".json") as path:
            tabulate(build_tool(ClusterTool(str(path), wafers=2)))

    return Reader(draw, read)


def routes() -> Reader:
    return _tool_reader(list(json.loads((PETRI / "routes.json").read_text()).values())[:8])


def tool_files() -> Reader:
    from redline.worlds.petri.tool_file import TEMPLATE

    return _tool_reader([TEMPLATE])


def devices() -> Reader:
    from redline.worlds.petri.cluster_tool import read_device

    values = list(json.loads((PETRI / "devices.json").read_text()).values())
    return Reader(json_of(values), lambda data: read_device("tool", data))


def schedules() -> Reader:
    from redline.worlds.petri.replay import load_recording, verify

    files = sorted((DATA / "petri" / "schedules").glob("*.json"))
    values = [json.loads(file.read_text()) for file in files[:3] + files[-3:]]

    def read(data: Any) -> None:
        with a_file(encoded(data), ".json") as path:
            verify(load_recording(path))

    return Reader(json_of(values), read)


def networks() -> Reader:
    from redline.worlds.registry import make_env

    contents = [(SEEDS / "network.yaml").read_bytes()]

    def draw(rng: random.Random) -> bytes:
        if rng.random() < 0.1:
            return _with_aliases(rng, contents[0])
        return mutated_bytes(rng, contents[0], contents)[
            : 100_000 if rng.random() < 0.001 else 1500
        ]  # YAML is slow to read

    def read(data: bytes) -> None:
        with a_file(data, ".yaml") as path:
            make_env(f"nasim:{path}", 1).close()

    return Reader(draw, read)


def _with_aliases(rng: random.Random, data: bytes) -> bytes:
    """A section that is a list of lists of the same list, which is small to write and immense to look through."""
    bomb = "[x, x, x, x, x, x, x, x, x]"
    for k in range(rng.choice((1, 4, 30))):
        bomb = f"[&b{k} {bomb}{f', *b{k}' * 8}]"
    section = rng.choice(("os", "subnets", "topology", "exploits", "firewall", "services", "sensitive_hosts"))
    return data.replace(f"{section}:".encode(), f"{section}: {bomb} #".encode(), 1)


def names() -> Reader:
    from redline.worlds.registry import make_env

    right = (
        "cage2?max_steps=50&red_agent=SleepAgent&observation=history&history=3", "slow?mean_ms=1&size=3&num_actions=2",
        "petri:cluster/S-0?wafers=3&arms=2&cleaning=on&waits=5,10&idle_cleaning=60,20&wip_limit=4",
        "petri:jobshop/ft06?buffers=blocking&horizon=500", "nasim:tiny?fully_obs=true&network_seed=3",
        "petri:tests/data/petri/pnml/kanban_1.pnml?goal=Unit:3&default_duration=2",
        "cage4?steps=50&red_agent=DiscoveryFSRed&green_agent=SleepAgent&room=2",
    )  # fmt: skip

    def draw(rng: random.Random) -> str:
        head, _, query = rng.choice(right).partition("?")
        parts = query.split("&")
        k = rng.randrange(len(parts))
        option = parts[k].partition("=")[0]
        parts[k] = rng.choice(
            (f"{option}={rng.choice(NUMBERS + WORDS)}", rng.choice(WORDS), f"{rng.choice(WORDS)}=1", parts[k] * 2)
        )
        if rng.random() < 0.2:
            head = mutated_bytes(rng, head.encode(), [head.encode()])[:200].decode(errors="replace")
        return f"{head}?{'&'.join(parts)}"

    def read(name: str) -> None:
        if name.startswith(("cage", "slow", "petri", "nasim")):
            make_env(name, 1).close()

    return Reader(draw, read)


def keys() -> Reader:
    """The file that holds this user's key."""
    import os
    from unittest.mock import patch

    from redline.signature import is_signed, key_file, signed

    folder = a_folder()

    def read(data: bytes) -> None:
        with patch.dict(os.environ, XDG_CONFIG_HOME=str(folder)):
            path = key_file()
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o600)
            assert is_signed(signed({"env": "cage2"})) == (len(data) == 32)

    return Reader(bytes_of([bytes(range(32))]), read)


READERS = (
    pnml, timings, job_shops, routes, tool_files, devices, schedules, networks, names, keys,
)  # fmt: skip
