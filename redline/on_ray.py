"""Ray, where it is installed: joined at an address or started here, without a word on the terminal."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from redline.errors import RedlineError, install

CONNECT_SECONDS = 5.0
HTTP2_SETTINGS = b"\x04"  # the kind of frame with which both sides begin
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + HTTP2_SETTINGS + bytes(5)


def connect(num_cpus: int, address: str | None) -> tuple[Any, bool]:
    """The module `ray`, connected, and whether it was us who did that: then it is for us to call `ray.shutdown`.

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


def _init(ray: Any, num_cpus: int, address: str | None) -> None:
    """Prints nothing, and leaves our handling of SIGTERM as it was."""
    on_sigterm = signal.getsignal(signal.SIGTERM)
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        with _nobody_listens(ray):
            if address is None:
                ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **quiet)
            else:
                _knock(address)
                ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        where = f"at {address!r} " if address else ""
        reason = str(error).strip().split("\n")[0]
        raise RedlineError(
            f"No Ray cluster {where}could be reached ({reason}). Try 'auto', host:port, or none."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)


@contextlib.contextmanager
def _nobody_listens(ray: Any) -> Iterator[None]:
    """Connects without the thread that prints pages on stdout when a worker or a node dies: that is for us to say."""
    worker = getattr(getattr(ray, "_private", None), "worker", None)
    listen = getattr(worker, "listen_error_messages", None)
    if worker is None or listen is None:  # another version of Ray, which may print what it likes
        yield
        return
    worker.listen_error_messages = lambda *_: None
    try:
        yield
    finally:
        worker.listen_error_messages = listen


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
