"""Processes of our own: deaf to Ctrl-C, one thread each, and never outliving the process that wanted them."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import connection

PR_SET_PDEATHSIG = 1  # from linux/prctl.h

_environment_lock = threading.Lock()


def how_it_ended(exit_code: int | None) -> str:
    """An exit code in words that follow "the worker"."""
    if exit_code is None:
        return "vanished"
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables for as long as it takes to start a process."""
    with _environment_lock:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Holds Ctrl-C back. A child started meanwhile is deaf to it from birth, and prints no traceback of its imports."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(told_by_kernel: bool = True) -> None:
    """In a new process: leave Ctrl-C to the parent, and do not outlive it.

    `told_by_kernel` asks for a SIGKILL when whoever forked us ends, which reaches us even while we hold the interpreter.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if sys.platform == "linux" and told_by_kernel:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if _parent_is_gone(0):  # before we asked to be told
        os._exit(1)


def step_back() -> None:
    """Do not push the process that wakes us off its core: it has others to wake first.

    Without this, the first of two workers to be asked delays the asking of the second by milliseconds.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _exit_with_parent() -> None:
    _parent_is_gone(None)
    os._exit(1)


def _parent_is_gone(timeout: float | None) -> bool:
    parent = multiprocessing.parent_process()
    assert parent is not None
    return bool(connection.wait([parent.sentinel], timeout))
