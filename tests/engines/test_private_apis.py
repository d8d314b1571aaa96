"""Private parts of other packages that engines and pools lean on. Each test says what breaks when one of them changes."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import process as futures_process
from multiprocessing import forkserver, spawn
from pathlib import Path

import numpy as np
import pytest
from gymnasium.vector import VectorEnv

from redline.engines.workers.fork_server import bare_main, fork_server, from_fork_server
from redline.processes import _close_pools, processes_of

ROOT = Path(__file__).parents[2]


def descriptor_of_the_server() -> tuple[bool, bool]:
    """In a worker: whether the attribute is there, and whether it is an open file."""
    server = forkserver._forkserver
    if not hasattr(server, "_forkserver_alive_fd"):
        return False, False
    try:
        os.fstat(server._forkserver_alive_fd)
    except (OSError, TypeError):
        return True, False
    return True, True


def test_a_worker_finds_the_descriptor_that_keeps_its_fork_server_alive():
    def open_executor() -> ProcessPoolExecutor:
        executor = ProcessPoolExecutor(1, mp_context=fork_server())
        executor.submit(os.getpid)
        return executor

    with from_fork_server(open_executor) as executor:
        there, is_open = executor.submit(descriptor_of_the_server).result(timeout=60)
    assert there, (
        "multiprocessing.forkserver._forkserver has no _forkserver_alive_fd any more. fork_server.end_with_main closes it, "
        "so that a worker that hangs does not keep the server alive: workers cannot start at all until it is found anew."
    )
    assert is_open, (
        "multiprocessing.forkserver._forkserver._forkserver_alive_fd is no open file in a worker. If workers have inherited "
        "it under another name, one that hangs in an env outlives the process that started it."
    )


def test_the_user_s_script_is_not_in_what_a_new_process_is_told():
    with bare_main():
        told = spawn.get_preparation_data("worker")
    assert not {"init_main_from_name", "init_main_from_path"} & told.keys(), (
        "multiprocessing.spawn finds the user's script although fork_server.bare_main hides sys.modules['__main__']: "
        "every worker would run the script again."
    )


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_an_executor_shows_its_process_after_the_first_task(method):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as executor:
        executor.submit(os.getpid)
        assert hasattr(executor, "_processes"), (
            "ProcessPoolExecutor has no _processes any more. processes.processes_of reads it: engine pool and the search "
            "can neither kill a process that hangs nor say how one died."
        )
        found = processes_of(executor)
        assert [(type(each.pid), each.exitcode) for each in found] == [(int, None)], (
            f"ProcessPoolExecutor._processes holds {found} after the first task, where one running process is due. "
            "processes.PoolProcess takes the only one for its own."
        )
        assert callable(found[0].kill)


def test_pools_are_closed_before_executors_wait_for_their_tasks():
    assert hasattr(threading, "_register_atexit"), (
        "threading has no _register_atexit any more. processes.py closes its pools by it, before executors wait for "
        "tasks that may never be done: a program would not end while an env hangs."
    )
    registered = [each.func for each in threading._threading_atexits]
    assert registered.index(_close_pools) > registered.index(futures_process._python_exit), (
        "threading calls what was registered last first, and concurrent.futures has registered behind processes.py."
    )


def test_a_program_ends_although_a_process_of_a_pool_does_not(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, os, time
            from redline.processes import ProcessPool, end_with_parent
            if __name__ == "__main__":
                pool = ProcessPool(multiprocessing.get_context("spawn"), lambda open_executor: open_executor())
                process = pool.start(end_with_parent)
                pool.submit(process, os.getpid).result()
                pool.submit(process, time.sleep, 600)
            """
        )
    )
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(script)], env=environment, check=True, timeout=60)
    assert time.monotonic() - began < 60


def test_gymnasium_gathers_infos_as_our_vector_envs_do():
    assert list(inspect.signature(VectorEnv._add_info).parameters) == ["self", "vector_infos", "env_info", "env_num"], (
        "gymnasium's VectorEnv._add_info takes other arguments. vectors.SupervisedVectorEnv gathers the infos of its envs "
        "by it, so that they have the form of gymnasium's own vector envs."
    )
    envs = VectorEnv()
    envs.num_envs = 2
    infos = envs._add_info({}, {"score": 3.0}, 1)
    assert infos["score"].tolist() == [0.0, 3.0] and infos["_score"].tolist() == [False, True]
    assert infos["score"].dtype == np.float64
