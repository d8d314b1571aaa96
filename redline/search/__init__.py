"""Workflow search: which order of priorities does best?"""

from __future__ import annotations

from redline.errors import unknown
from redline.worlds.registry import all_worlds
from redline.worlds.workflows import Workflows
from redline.worlds.world import loaded

KIND = "workflow search"
"""The kind of run that the config of a search's folder tells of."""


def worlds_with_workflows() -> list[str]:
    """The names of the worlds that a search can choose from."""
    return [world.name for world in all_worlds() if world.workflows is not None]


def workflows_of(name: str) -> Workflows:
    """The workflows of the world called `name`."""
    found = next((loaded(world.workflows) for world in all_worlds() if world.name == name), None)
    if found is None:
        raise unknown("env with workflows", name, worlds_with_workflows())
    return found
