"""Ray, where it is installed: joined at an address or started here."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import socket
import threading
from typing import Any

from redline.errors import RedlineError, install
from redline.processes import TimeUp, time_limit

CONNECT_SECONDS = 5.0
JOIN_SECONDS = 12.0
"""Time to join a cluster whose port is open. Ray's own calls may take up to a minute to notice that it is over."""
QUIET = {"log_to_driver": False, "logging_level": "error"}

_cluster: set[int] = set()
"""The processes of a cluster of our own."""


def connect(num_cpus: int, address: str | None) -> tuple[Any, bool]:
    """The module `ray`, connected, and whether Redline connected it: then Redline must `disconnect`.

    `address` is "auto" or host:port of a running cluster; none starts one of `num_cpus` on this machine.
    Where the program has called `ray.init` itself, that connection is used.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise RedlineError(f"Ray is not installed: {install('ray')}.") from error
    if ray.is_initialized():
        return ray, False
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        if address is None:
            _start(ray, num_cpus)
        else:
            _join(ray, address)
    finally:  # Ray takes SIGTERM for itself
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)
    return ray, True


def disconnect(ray: Any) -> None:
    """Shut Ray down, and end what is left of a cluster of our own: its agents notice late that it is gone."""
    open_processes = [os.pidfd_open(pid) for pid in _with_all_below(_cluster & _children_of("self"))]
    _cluster.clear()
    try:
        ray.shutdown()
    finally:
        for process in open_processes:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            os.close(process)


def _start(ray: Any, num_cpus: int) -> None:
    before = _children_of("self")
    try:
        ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **QUIET)
    except BaseException as error:
        _cluster.update(_children_of("self") - before)
        disconnect(ray)
        if not isinstance(error, Exception):
            raise
        raise RedlineError(
            f"Ray did not start ({_reason(error)}). Try again when this machine is less busy, or --engine pool."
        ) from error
    _cluster.update(_children_of("self") - before)
    atexit.register(_disconnect_at_exit, ray)


def _join(ray: Any, address: str) -> None:
    try:
        _require_open_port(address)
        with time_limit(JOIN_SECONDS):
            ray.init(address=address, **QUIET)
    except TimeUp:
        raise _unreachable(address, f"no answer within {JOIN_SECONDS:g} s") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreachable(address, _reason(error)) from error


def _unreachable(address: str, reason: str) -> RedlineError:
    return RedlineError(f"No Ray cluster at {address!r} could be reached ({reason}). Try 'auto', host:port, or none.")


def _require_open_port(address: str) -> None:
    """Fail within seconds where no program listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def _disconnect_at_exit(ray: Any) -> None:
    """For a program that was interrupted before it had an engine to close."""
    if _cluster:
        disconnect(ray)


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]


def _children_of(process: str) -> set[int]:
    """The processes that a process has started and that still run."""
    found = set[int]()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children") as file:
                found.update(map(int, file.read().split()))
    return found


def _with_all_below(pids: set[int]) -> set[int]:
    """These processes, and all that they have started."""
    found = set(pids)
    for pid in pids:
        found |= _with_all_below(_children_of(str(pid)))
    return found
