"""Networks by name: `nasim:medium`, `nasim:small-gen?network_seed=3`, `nasim:my/network.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redline.errors import RedlineError, unknown
from redline.worlds.nasim.options import NetworkOptions
from redline.worlds.nasim.rules.generate import SIZES, generate
from redline.worlds.nasim.rules.scenario import AttackScenario
from redline.worlds.nasim.scenarios import FIXED
from redline.worlds.nasim.yaml_file import read_scenario

PREFIX = "nasim:"


def find_network(name: str, options: NetworkOptions) -> AttackScenario:
    """The network that a name means."""
    require_network(name)
    bare = name.removeprefix(PREFIX)
    if is_file(bare):
        return read_scenario(bare)
    if bare in FIXED:
        return FIXED[bare]
    return generate(bare, SIZES[bare], options.network_seed)


def require_network(name: str) -> None:
    """Refuse a name that nothing can come of."""
    bare = name.removeprefix(PREFIX)
    if is_file(bare):
        if not Path(bare).is_file():
            raise RedlineError(f"There is no scenario file {bare!r}. Try {PREFIX}medium.")
    elif bare not in FIXED and bare not in SIZES:
        raise unknown("network", name, [PREFIX + known for known in (*FIXED, *SIZES, "file.yaml")])


def reaches(name: str, options: dict[str, Any]) -> str | None:
    """The file that a network is read from, in words."""
    bare = name.removeprefix(PREFIX)
    return f"open {bare}" if is_file(bare) else None


def is_file(bare: str) -> bool:
    """Whether a name without its prefix is that of a file."""
    return bare.endswith((".yaml", ".yml"))
