"""Where worker processes come from: a server that has loaded numpy and Gymnasium, but never torch, and forks itself.

The first process costs a second, the next a few milliseconds. None outlives the process that wanted it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import sys
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, TypeVar

from redline.engines.faults import EnvTrouble
from redline.errors import RedlineError
from redline.processes import end_with_parent, environment, lead_own_group, sigint_blocked, step_back
from redline.threads import ONE_THREAD

PRELOADED = "redline.engines.workers.child"
"""The module that the server has imported, with all that it imports, before it forks."""
SERVER_TRIES = 20
FILES_PER_WORKER = 8

T = TypeVar("T")


def start_process(target: Callable[[], None], name: str) -> ForkServerProcess:
    """A new process from the fork server that runs `target` and ends with this one."""

    def start() -> ForkServerProcess:
        process = fork_server().Process(target=target, name=name, daemon=True)
        process.start()
        return process

    return from_fork_server(start)


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
    return context


def end_with_main() -> None:
    """In a process from the fork server: do not outlive the one that wanted it, not even while hanging in an env.

    The server ends when the last descriptor of a certain pipe is closed, and its processes are killed by the kernel when
    it ends. They have inherited that descriptor: one that hangs would keep the server alive, and so itself.
    """
    lead_own_group()
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
