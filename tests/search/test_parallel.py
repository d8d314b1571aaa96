"""Tasks side by side: real processes, killed by real signals, and a real Ray cluster that loses a node."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.search.parallel import ONE_THREAD, RUNNERS, Here, OnRay, Processes, WorkerTraceback, make_runner

side_by_side = pytest.mark.parametrize("runner", ["processes", "ray"], indirect=True, scope="class")


class Task(NamedTuple):
    """What a task finds in its folder tells it what has happened so far."""

    folder: Path
    index: int

    def leave(self, what: str) -> None:
        with (self.folder / f"{what}-{self.index}").open("a") as file:
            file.write(f"{os.getpid()}\n")

    def times(self, what: str) -> int:
        path = self.folder / f"{what}-{self.index}"
        return len(path.read_text().splitlines()) if path.exists() else 0


def tasks_in(folder: Path, count: int) -> list[Task]:
    return [Task(folder, index) for index in range(count)]


def wait_until(is_true, seconds=120.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_true():
            return True
        time.sleep(0.01)
    return False


class TwoPart(Exception):
    """Pickles, but cannot be unpickled: like many exceptions in the wild."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


# Tasks


def draw(task: Task) -> np.ndarray:
    task.leave("done")
    return np.random.default_rng(task.index).normal(size=3)


def wait_for_the_next(task: Task) -> int:
    """The first of two can only finish after the second."""
    if task.index == 0:
        assert wait_until(lambda: task._replace(index=1).times("done"))
    task.leave("done")
    return task.index


def die_once(task: Task) -> int:
    task.leave("started")
    if task.index == 1 and task.times("started") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return task.index * 10


def die_thrice(task: Task) -> int:
    task.leave("started")
    if task.index == 1:
        os._exit(7)
    return task.index


def refuse_one_and_two(task: Task) -> int:
    task.leave("started")
    if task.index == 2:
        raise ValueError("two is refused")
    if task.index == 1:
        assert wait_until(lambda: task._replace(index=2).times("started"))
        time.sleep(0.2)  # let the later task fail first
        raise RedlineError("one is refused")
    return task.index


def refuse_in_two_parts(task: Task) -> int:
    raise TwoPart("a hole", "the bucket")


def return_a_lambda(task: Task) -> object:
    return lambda: task


def threads_of_torch(task: Task) -> tuple[int, dict[str, str | None]]:
    import torch

    return torch.get_num_threads(), {name: os.environ.get(name) for name in ONE_THREAD}


def own_pid(task: Task) -> int:
    return os.getpid()


def wait_on_a_node(task: Task) -> int:
    """Finishes only on a node that the test lets go on."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    with (task.folder / f"nodes-{task.index}").open("a") as file:
        file.write(f"{node}\n")
    assert wait_until(lambda: (task.folder / f"go-on-{node}").exists())
    return task.index


# What every runner promises


@pytest.fixture(scope="class", params=RUNNERS)
def runner(request):
    if request.param == "ray":
        pytest.importorskip("ray")
    runner = make_runner(request.param, workers=2)
    yield runner
    runner.close()
    runner.close()  # twice is fine


class TestEveryRunner:
    # A class, so that Ray's connection is gone before the cluster's tests below.

    def test_results_are_those_of_running_the_function_here(self, runner, tmp_path):
        results = runner.run(draw, tasks_in(tmp_path, 5))
        np.testing.assert_array_equal(results, [np.random.default_rng(index).normal(size=3) for index in range(5)])

    def test_the_earliest_error_reaches_the_caller_and_later_tasks_do_not_start(self, runner, tmp_path):
        tasks = tasks_in(tmp_path, 6)
        if isinstance(runner, Here):
            tasks[2].leave("started")  # nobody is there to start it beside the first
        with pytest.raises(RedlineError, match="one is refused") as caught:
            runner.run(refuse_one_and_two, tasks)
        assert type(caught.value) is RedlineError
        assert [task.times("started") for task in tasks[4:]] == [0, 0]

    def test_no_tasks_give_no_results(self, runner):
        assert runner.run(draw, []) == []

    @side_by_side
    def test_results_keep_the_order_of_the_tasks_although_the_last_finishes_first(self, runner, tmp_path):
        assert runner.run(wait_for_the_next, tasks_in(tmp_path, 2)) == [0, 1]

    @side_by_side
    def test_a_task_whose_worker_is_killed_is_run_again_and_the_others_are_not(self, runner, tmp_path, capsys):
        tasks = tasks_in(tmp_path, 4)
        assert runner.run(die_once, tasks) == [0, 10, 20, 30]
        assert [task.times("started") for task in tasks] == [1, 2, 1, 1]
        assert "Task 2 of 4 is run again (attempt 2 of 3): its worker " in capsys.readouterr().err

    @side_by_side
    def test_an_error_that_cannot_be_unpickled_still_says_what_it_was(self, runner, tmp_path):
        with pytest.raises(RuntimeError, match="TwoPart: a hole in the bucket"):
            runner.run(refuse_in_two_parts, tasks_in(tmp_path, 1))


@pytest.fixture
def processes():
    runner = Processes(workers=2)
    yield runner
    runner.close()


# Processes


def test_a_death_is_reported_in_one_line_with_pid_and_signal(processes, tmp_path, capsys):
    processes.run(die_once, tasks_in(tmp_path, 2))
    pid = (tmp_path / "started-1").read_text().split()[0]
    line = f"Task 2 of 2 is run again (attempt 2 of 3): its worker (pid {pid}) was killed by SIGKILL.\n"
    assert capsys.readouterr().err == line


def test_a_task_that_kills_every_worker_is_given_up_with_one_clear_line(processes, tmp_path, capsys):
    tasks = tasks_in(tmp_path, 2)
    with pytest.raises(RedlineError, match=r"Task 2 of 2 lost its worker 3 times; .* exited with code 7\.$"):
        processes.run(die_thrice, tasks)
    assert [task.times("started") for task in tasks] == [1, 3]
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert len(processes.run(draw, tasks)) == 2  # and the runner is as good as new


def test_a_worker_that_dies_idle_is_replaced(processes, tmp_path):
    (pid,) = processes.run(own_pid, tasks_in(tmp_path, 1))
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: pid not in children_of(os.getpid()))
    assert processes.run(own_pid, tasks_in(tmp_path, 1)) != [pid]


def test_workers_stay_for_the_next_run(processes, tmp_path):
    tasks = tasks_in(tmp_path, 1)
    assert processes.run(own_pid, tasks) == processes.run(own_pid, tasks)


def test_an_error_comes_with_the_traceback_of_the_worker(processes, tmp_path):
    with pytest.raises(ValueError, match="two is refused") as caught:
        processes.run(refuse_one_and_two, [Task(tmp_path, 2)])
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in refuse_one_and_two" in str(caught.value.__cause__)


def test_a_result_that_cannot_be_pickled_is_an_error_and_not_a_dead_worker(processes, tmp_path, capsys):
    with pytest.raises(Exception, match="return_a_lambda"):
        processes.run(return_a_lambda, tasks_in(tmp_path, 1))
    assert capsys.readouterr().err == ""


def test_a_worker_has_one_thread_and_the_parent_keeps_its_own_settings(processes, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert processes.run(threads_of_torch, tasks_in(tmp_path, 1)) == [(1, ONE_THREAD)]
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert "MKL_NUM_THREADS" not in os.environ


def test_workers_survive_the_thread_that_started_them(processes, tmp_path):
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.extend(processes.run(own_pid, tasks_in(tmp_path, 1))))
    thread.start()
    thread.join()
    assert processes.run(own_pid, tasks_in(tmp_path, 1)) == pids


# Nobody outlives the parent

SLEEPERS = """
import sys, threading, time
from redline.search.parallel import Processes

def sleep(path):
    open(path, "w").close()
    time.sleep(60)

def run():
    Processes(workers=2).run(sleep, sys.argv[2:])

if __name__ == "__main__":
    if sys.argv[1] == "thread":
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
"""


def children_of(pid: int) -> set[int]:
    """Children that are not zombies."""
    children = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                children.add(int(stat.parent.name))
    return children


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def sleepers(folder: Path, thread: str):
    """A program whose two workers sleep."""
    script = folder / "sleepers.py"
    script.write_text(SLEEPERS)
    marks = [folder / "first", folder / "second"]
    command = [sys.executable, str(script), thread, *map(str, marks)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as parent:
        try:
            assert wait_until(lambda: all(mark.exists() for mark in marks))
            yield parent
        finally:
            parent.kill()


@pytest.mark.parametrize("thread", ["main", "thread"])
def test_children_go_when_the_parent_is_killed(thread, tmp_path):
    with sleepers(tmp_path, thread) as parent:
        children = children_of(parent.pid)
        assert len(children) >= 2
        parent.kill()
        assert wait_until(lambda: not any(map(is_alive, children)))


def test_ctrl_c_ends_everything_promptly_and_only_the_parent_speaks(tmp_path):
    with sleepers(tmp_path, "main") as parent:
        children = children_of(parent.pid)
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
        _, said = parent.communicate(timeout=120)
    assert parent.returncode == -signal.SIGINT
    assert said.count("Traceback") == 1
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert wait_until(lambda: not any(map(is_alive, children)))


# Names and addresses


def test_an_unknown_runner_is_refused_with_the_nearest_name():
    with pytest.raises(RedlineError, match="Did you mean 'processes'"):
        make_runner("process", workers=2)


def test_no_workers_are_too_few():
    with pytest.raises(RedlineError, match="Try 1 or more"):
        make_runner("processes", workers=0)


def test_a_missing_ray_gives_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RedlineError, match=r"pip install 'redline\[ray\]'"):
        make_runner("ray", workers=2)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_a_cluster_that_is_not_there_is_an_error_within_seconds(address):
    pytest.importorskip("ray")
    with pytest.raises(RedlineError, match=f"No Ray cluster at '{address}'"):
        OnRay(2, address)


# A Ray cluster


@pytest.fixture
def cluster():
    """Two nodes with one core each, and a head that runs nothing."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def test_a_task_moves_to_another_node_when_its_own_dies(cluster, tmp_path, capsys):
    nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
    on_sigterm = signal.getsignal(signal.SIGTERM)
    runner = OnRay(2, cluster.address)
    assert signal.getsignal(signal.SIGTERM) is on_sigterm
    tasks = tasks_in(tmp_path, 2)
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.extend(runner.run(wait_on_a_node, tasks)))
    thread.start()
    assert wait_until(lambda: all((tmp_path / f"nodes-{index}").exists() for index in range(2)))

    cluster.remove_node(nodes[1], allow_graceful=False)
    (tmp_path / f"go-on-{nodes[0].node_id}").touch()
    thread.join(timeout=300)

    runner.close()
    assert results == [0, 1]
    ran_on = [(tmp_path / f"nodes-{index}").read_text().split() for index in range(2)]
    assert sorted(map(len, ran_on)) == [1, 2]
    assert {places[-1] for places in ran_on} == {nodes[0].node_id}
    assert "is run again (attempt 2 of 3): its worker on Ray was lost" in capsys.readouterr().err
