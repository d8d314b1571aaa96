"""Where worker processes come from: a server that has loaded numpy and Gymnasium, but never torch, and forks itself.

The first process costs a second, the next a few milliseconds. None outlives the process that wanted it.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, util
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, TypeVar

from redline.engines.faults import EnvTrouble
from redline.errors import RedlineError
from redline.processes import CLOSE_SECONDS, end_with_parent, environment, guard_children, sigint_blocked, step_back
from redline.threads import ONE_THREAD

PRELOADED = "redline.engines.workers.child"
"""The module that the server has imported, with all that it imports, before it forks."""
SERVER_TRIES = 20
FILES_PER_WORKER = 8
LONGEST_FOLDER, SHORT_FOLDER = 60, "/tmp"

T = TypeVar("T")


def start_process(target: Callable[[], None], name: str) -> ForkServerProcess:
    """A new process from the fork server that runs `target` and ends with this one."""

    def start() -> ForkServerProcess:
        process = fork_server().Process(target=target, name=name, daemon=True)
        with _starting:
            if _is_over:
                raise SystemExit  # of this thread, which saw its worker end because everything does
            process.start()
        return process

    return from_fork_server(start)


_starting = threading.Lock()
_is_over = False


def _start_no_more() -> None:
    """At the end of this process, before multiprocessing ends all children and then waits for those there are: a thread
    that replaces one of them meanwhile would have it wait for ever.
    """
    global _is_over
    taken = _starting.acquire(timeout=CLOSE_SECONDS)
    _is_over = True
    if taken:
        _starting.release()


atexit.register(_start_no_more)  # the last to register is the first to be called


def from_fork_server(start: Callable[[], T]) -> T:
    """What `start` returns, called where new processes are deaf to Ctrl-C and have one thread from birth."""
    with bare_main(), environment(ONE_THREAD), sigint_blocked():
        for _ in range(SERVER_TRIES):
            with contextlib.suppress(ConnectionError, EOFError):
                return start()
            time.sleep(0.1)  # the server has just been killed; once it is gone, another is started
    raise EnvTrouble("No worker can be started: the server they are forked from ends again and again. Try fewer.")


def fork_server() -> ForkServerContext:
    """The context whose processes are forked from a clean server of ours."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    if _sockets().get("tempdir") is None:
        _make_room()
    return context


def _sockets() -> dict[str, Any]:
    """Where multiprocessing of this process remembers the folder of its sockets, and hands it on."""
    config: dict[str, Any] = multiprocessing.process.current_process()._config  # type: ignore[attr-defined]
    return config


def _make_room() -> None:
    """A folder for the server's socket, whose path may have some 100 letters in all, however long TMPDIR is."""
    base = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="pymp-", dir=base if len(base) <= LONGEST_FOLDER else SHORT_FOLDER)
    _sockets()["tempdir"] = folder
    util.Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=-100)


def end_with_main() -> None:
    """In a process from the fork server: do not outlive the one that wanted it, not even while hanging in an env.

    The server ends when the last descriptor of a certain pipe is closed, and its processes are killed by the kernel when
    it ends. They have inherited that descriptor: one that hangs would keep the server alive, and so itself.
    """
    parent = multiprocessing.parent_process()
    guard_children(0 if parent is None or parent.pid is None else parent.pid, _sockets().get("tempdir"))
    end_with_parent()
    step_back()
    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


@contextlib.contextmanager
def bare_main() -> Iterator[None]:
    """Hides the user's script: a worker has no use for it, and importing it again would run what is not guarded."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def require_files(num_workers: int) -> None:
    """Refuse to begin what would run out of file descriptors, after asking for as many as we may have."""
    in_use = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 64
    needed = in_use + FILES_PER_WORKER * num_workers + 64
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
        if most < needed:
            fits = max(1, (most - in_use - 64) // FILES_PER_WORKER)
            raise RedlineError(
                f"{num_workers} workers need about {needed} open files, and this process may have {most}. "
                f"Try --workers {fits}, or a higher limit (ulimit -n)."
            )
