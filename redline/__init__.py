"""Redline: PPO training at the speed of the hardware, for simulators that used to be too slow to train on."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from redline.errors import RedlineError
from redline.threads import wait_politely
from redline.version import __version__

if TYPE_CHECKING:
    from redline.compiled import kernel, rule, uniform
    from redline.engines import vector
    from redline.learn.agent import Agent
    from redline.learn.api import Training, evaluate, load, train
    from redline.learn.export import export
    from redline.learn.train import Update
    from redline.worlds.encoding import packed, plain, put
    from redline.worlds.petri.makers import ClusterTool, JobShop
    from redline.worlds.recordings import Recorder
    from redline.worlds.registry import make_env
    from redline.worlds.rules import Rules, rules_world
    from redline.worlds.world import World

__all__ = [
    "Agent",
    "ClusterTool",
    "JobShop",
    "Recorder",
    "RedlineError",
    "Rules",
    "Training",
    "Update",
    "World",
    "__version__",
    "evaluate",
    "export",
    "kernel",
    "load",
    "make_env",
    "packed",
    "plain",
    "put",
    "rule",
    "rules_world",
    "train",
    "uniform",
    "vector",
]

_HOMES = {
    "ClusterTool": "redline.worlds.petri.makers",
    "JobShop": "redline.worlds.petri.makers",
    "Agent": "redline.learn.agent",
    "Recorder": "redline.worlds.recordings",
    "Rules": "redline.worlds.rules",
    "Training": "redline.learn.api",
    "Update": "redline.learn.train",
    "World": "redline.worlds.world",
    "evaluate": "redline.learn.api",
    "export": "redline.learn.export",
    "kernel": "redline.compiled",
    "load": "redline.learn.api",
    "make_env": "redline.worlds.registry",
    "packed": "redline.worlds.encoding",
    "plain": "redline.worlds.encoding",
    "put": "redline.worlds.encoding",
    "rule": "redline.compiled",
    "rules_world": "redline.worlds.rules",
    "train": "redline.learn.api",
    "uniform": "redline.compiled",
    "vector": "redline.engines",
}

wait_politely()


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for, so that `redline --help` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'redline' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return found
