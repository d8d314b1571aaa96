"""Nets of one's own from Python: `redline.ClusterTool(...)` and `redline.JobShop(...)`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.errors import RedlineError
from redline.files import reason, replace_file
from redline.worlds.petri.cluster_tool import ClusterTool as ToolOptions
from redline.worlds.petri.cluster_tool import build_tool
from redline.worlds.petri.env import PetriEnv, PetriVectorEnv
from redline.worlds.petri.instances import PREFIX
from redline.worlds.petri.job_shop import JobShop as ShopOptions
from redline.worlds.petri.job_shop import Shop, build_shop
from redline.worlds.petri.rules.net import Net
from redline.worlds.petri.tool_file import read_tool

Choices = Sequence[tuple[int, int]]
"""Machines to choose from, each with the time it takes."""


@dataclass(frozen=True)
class OwnNet:
    """A net of one's own, to be played at once, or saved under a name that every command and process knows."""

    family: str
    ending: str
    text: str
    """The file that describes it."""
    described: Any

    def net(self, **options: Any) -> Net:
        """The net, with the options that could follow its name."""
        if self.family == "cluster":
            route, device = read_tool("tool", self.described)
            return build_tool(ToolOptions(route="tool.json", **options), route, device)
        return build_shop(ShopOptions(instance="shop.fjs", **options), self.described)

    def env(self, *, render_mode: str | None = None, **options: Any) -> PetriEnv:
        """One env."""
        return PetriEnv(self.net(**options), render_mode=render_mode)

    def envs(self, num_envs: int, **options: Any) -> PetriVectorEnv:
        """Many envs that step by one call: a `gymnasium.vector.VectorEnv`, which `redline.train` takes as it is."""
        return PetriVectorEnv(num_envs, self.net(**options))

    def save(self, path: str | Path) -> str:
        """Write the description to a file; returns the env's name, for `redline.train` and for every command."""
        file = Path(path)
        if file.suffix != self.ending:
            raise RedlineError(f"{file.name!r} must end in {self.ending}. Try {file.stem}{self.ending}.")
        try:
            replace_file(file, self.text.encode())
        except OSError as error:
            raise RedlineError(f"{file} cannot be written: {reason(error)}.") from error
        return f"{PREFIX}{self.family}/{file}"


def ClusterTool(
    robots: Mapping[str, Mapping[str, Any]],
    places: Mapping[str, Mapping[str, Any]],
    types: Sequence[Sequence[Mapping[str, Any]]],
    **more: Any,
) -> OwnNet:
    """A cluster tool: robots and places by name, and the route of each type of wafer, as in the JSON file.

    `more` are the other fields of that file: before, after, wip_limit, release_intervals, release_order.
    """
    described = json.loads(json.dumps({"robots": robots, "places": places, "types": types, **more}))
    found = OwnNet("cluster", ".json", json.dumps(described, indent=2) + "\n", described)
    found.net()
    return found


def JobShop(jobs: Sequence[Sequence[tuple[int, int] | Choices]]) -> OwnNet:
    """A job shop: for each job its operations in order, each (machine, duration) or a list of these to choose from.

    Machines are counted from 0.
    """
    shop = Shop("shop", tuple(tuple(_choices(operation) for operation in job) for job in jobs))
    return OwnNet("jobshop", ".fjs", flexible_text(shop), shop)


def _choices(operation: Any) -> tuple[tuple[int, int], ...]:
    pairs = [operation] if operation and isinstance(operation[0], int) else operation
    try:
        return tuple((int(machine), int(duration)) for machine, duration in pairs)
    except (TypeError, ValueError):
        raise RedlineError(
            f"The operation {operation!r} is neither (machine, duration) nor a list of these. Try (0, 5)."
        ) from None


def flexible_text(shop: Shop) -> str:
    """A job shop as a file with a choice of machines has it: machines are counted from 1 there."""
    lines = [f"{len(shop.jobs)} {shop.machines}"]
    for job in shop.jobs:
        words = [str(len(job))]
        for operation in job:
            words += [str(len(operation)), *(f"{machine + 1} {duration}" for machine, duration in operation)]
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"
