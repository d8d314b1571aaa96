"""Ray, where it is installed: joined at an address or started here, without a word on the terminal."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from redline.errors import RedlineError, install
from redline.processes import end_children, end_those_left, environment, own_children, with_all_below

CONNECT_SECONDS, START_TRIES = 5.0, 3
SHORT_FOLDER, LONGEST_FOLDER = "/tmp", 36
QUIET = {"log_to_driver": False, "logging_level": "error"}
HTTP2_SETTINGS = b"\x04"  # the kind of frame with which both sides begin
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + HTTP2_SETTINGS + bytes(5)

_cluster: set[int] = set()
"""The processes of a cluster of our own."""


def connect(num_cpus: int, address: str | None) -> tuple[Any, bool]:
    """The module `ray`, connected, and whether it was us who did that: then it is for us to `disconnect`.

    `address` is "auto" or host:port of a cluster that is already there; none starts one of `num_cpus` on this machine.
    Where the program has called `ray.init` itself, that connection is used.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise RedlineError(f"Ray is not installed: {install('ray')}.") from error
    if ray.is_initialized():
        return ray, False
    _init(ray, num_cpus, address)
    return ray, True


def disconnect(ray: Any) -> None:
    """Let go of Ray. Of a cluster of our own nothing is left: its agents would take their time to notice that it is gone."""
    left = with_all_below(_cluster & own_children())
    _cluster.clear()
    try:
        ray.shutdown()
    finally:
        end_those_left(left)


def _disconnect_at_last(ray: Any) -> None:
    """For whoever was interrupted before there was an engine to close."""
    if _cluster:
        disconnect(ray)


def _init(ray: Any, num_cpus: int, address: str | None) -> None:
    """Prints nothing, and leaves our handling of SIGTERM as it was."""
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        with _kept_from(ray, "worker", "listen_error_messages"), _kept_from(ray, "utils", "set_sigterm_handler"):
            if address is None:
                _start(ray, num_cpus)
            else:
                _knock(address)
                ray.init(address=address, **QUIET)
    except (OSError, ValueError, RuntimeError) as error:
        where = f"at {address!r} " if address else ""
        raise RedlineError(
            f"No Ray cluster {where}could be reached ({_reason(error)}). Try 'auto', host:port, or none."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)


def _start(ray: Any, num_cpus: int) -> None:
    """Start a cluster here. Ray gives its own processes half a minute, which a busy machine may need several times."""
    for left in reversed(range(START_TRIES)):
        children = own_children()
        try:
            with environment({"RAY_TMPDIR": _temporary_folder()}):
                ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **QUIET)
            _cluster.update(own_children() - children)
            atexit.register(_disconnect_at_last, ray)
            return
        except BaseException as error:
            end_children(own_children() - children)
            ray.shutdown()
            if not isinstance(error, Exception):  # Ray's own is nothing more special
                raise
            if not left:
                raise RedlineError(
                    f"Ray did not start ({_reason(error)}). Try again when this machine is less busy, or --engine pool."
                ) from error


def _temporary_folder() -> str:
    """Where a cluster keeps its sockets, whose paths may have some 100 letters in all, however long TMPDIR is."""
    asked = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or SHORT_FOLDER
    return asked if len(os.fsencode(asked)) <= LONGEST_FOLDER else SHORT_FOLDER


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]


@contextlib.contextmanager
def _kept_from(ray: Any, part: str, name: str) -> Iterator[None]:
    """Connects without something that Ray does beside: print pages on stdout when a node dies, and take SIGTERM from us."""
    module = getattr(getattr(ray, "_private", None), part, None)
    done = getattr(module, name, None)
    if module is None or done is None:  # another version of Ray, which may do what it likes
        yield
        return
    setattr(module, name, lambda *_: None)
    try:
        yield
    finally:
        setattr(module, name, done)


def _knock(address: str) -> None:
    """Fails within seconds where nobody listens, or nobody who speaks gRPC; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    with socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS) as caller:
        if "RAY_USE_TLS" not in os.environ:
            caller.sendall(HTTP2_GREETING)
            answer = caller.recv(4)
            if answer[3:] != HTTP2_SETTINGS:
                raise ConnectionError("whoever listens there is not Ray")
