"""Redline: PPO training at the speed of the hardware, for simulators that used to be too slow to train on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redline.errors import RedlineError
from redline.threads import wait_politely
from redline.version import __version__

if TYPE_CHECKING:
    from redline.engines import vector
    from redline.envs import make_env

__all__ = ["RedlineError", "__version__", "make_env", "vector"]

wait_politely()


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for, so that `redline --help` stays quick."""
    if name == "make_env":
        from redline.envs import make_env

        return make_env
    if name == "vector":
        from redline.engines import vector

        return vector
    raise AttributeError(f"module 'redline' has no attribute {name!r}")
