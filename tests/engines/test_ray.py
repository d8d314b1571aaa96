"""Ray actors that collect: real actors, killed by real signals, and a real cluster that loses a node."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from redline.engines import Collecting, Faults, make_engine
from redline.engines import ray as on_ray
from redline.engines.faults import Supervisor
from redline.errors import RedlineError
from redline.on_ray import _start, disconnect
from redline.rollout import Rollout
from redline.timing.stopwatch import Stopwatch
from tests.engines.scripted import Scripted

ray = pytest.importorskip("ray")

SEED = 7
FAULTY_SEED = SEED + 1  # the first life of env 1
THIS = "external:tests.engines.test_ray"


class Faulty(gym.Env):
    """Ten steps make an episode. With the seed `FAULTY_SEED`, its third one goes wrong."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str) -> None:
        self._fault, self._seed, self._steps = fault, -1, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self._seed, self._steps = self._seed if seed is None else seed, 0
        return self._obs(), {}

    def step(self, action: int):
        self._steps += 1
        if self._steps == 3 and self._seed == FAULTY_SEED:
            self._go_wrong()
        return self._obs(), 1.0, False, self._steps == 10, {}

    def _go_wrong(self) -> None:
        if self._fault == "raise":
            raise ValueError("the well is dry")
        if self._fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "hang":
            time.sleep(600)

    def _obs(self) -> np.ndarray:
        return np.array([self._steps / 10, 0.5], np.float32)


class Marking(Faulty):
    """Slow steps. Every process that plays leaves a mark in `folder`."""

    def __init__(self, folder: str) -> None:
        super().__init__("none")
        self._folder = Path(folder)

    def step(self, action: int):
        (self._folder / str(os.getpid())).touch()
        time.sleep(0.05)
        return super().step(action)


def engine_of(env: str, name: str = "ray", workers: int = 2, num_envs: int = 6, faults: Faults | None = None, **more):
    address = more.pop("address", None)
    collecting = Collecting(workers=workers, ray_address=address, faults=faults or Faults())
    return make_engine(name, env, num_envs, SEED, more, collecting)


def collect(engine, num_steps: int = 30) -> Rollout:
    policy = Scripted(int(engine.env.single_action_space.n))
    try:
        return engine.collect(policy, num_steps, Stopwatch())
    finally:
        engine.close()


def columns(rollout: Rollout) -> list[list[tuple]]:
    """All that happened in each env, step by step."""
    cells, ended = rollout.cells(), np.stack([rollout.terminated, rollout.truncated], axis=-1)
    obs = rollout.observations[rollout.rows]
    return [
        [
            (obs[t, i].tobytes(), rollout.actions[t, i], rollout.rewards[t, i], *ended[t, i])
            for t in np.flatnonzero(cells[:, i])
        ]
        for i in range(cells.shape[1])
    ]


def whole(rollout: Rollout, num_envs: int = 6, num_steps: int = 30) -> bool:
    """Whether every env has its steps, and every episode that ends among them is counted."""
    cells = rollout.cells()
    ends = (rollout.terminated | rollout.truncated) & cells
    enough = cells.shape[1] == num_envs and (cells.sum(axis=0) >= num_steps).all()
    return bool(enough and len(rollout.episode_returns) == ends.sum())


def wait_until(holds, seconds: float = 120.0) -> bool:
    until = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < until:
        time.sleep(0.05)
    return held


MARK = "REDLINE_TEST_MARK"


def processes_marked(mark: str) -> list[str]:
    """Command lines of processes that have inherited a mark, ourselves aside."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            inherited = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if inherited and command and int(folder.name) != os.getpid():
            found.append(command)
    return found


@pytest.fixture(scope="module", autouse=True)
def nothing_of_ray_survives():
    os.environ[MARK] = mark = secrets.token_hex(8)
    yield
    del os.environ[MARK]
    ray.shutdown()
    assert wait_until(lambda: not processes_marked(mark)), processes_marked(mark)


@pytest.fixture(scope="class")
def our_ray():
    """A program that has called `ray.init` itself."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.mark.usefixtures("our_ray")
class TestOnThisMachine:
    @pytest.mark.parametrize("workers", [1, 2])
    @pytest.mark.parametrize("env", ["slow?mean_ms=0.1&max_steps=20", "CartPole-v1"])
    def test_episodes_are_those_of_the_serial_engine(self, env, workers):
        rollout = collect(engine_of(env, workers=workers), 40)
        longest = len(rollout.rows)
        serial = columns(collect(engine_of(env, "serial"), longest))
        played = columns(rollout)
        assert all(len(column) >= 40 for column in played)
        assert played == [column[: len(mine)] for column, mine in zip(serial, played, strict=True)]

    def test_the_program_s_own_connection_stays_open(self):
        assert collect(engine_of("CartPole-v1", workers=1)).rows.flags.writeable
        assert ray.is_initialized()

    def test_an_env_that_raises_begins_anew_and_is_named_with_its_traceback(self, capsys):
        engine = engine_of(f"{THIS}:Faulty", fault="raise")
        assert whole(collect(engine))
        said = capsys.readouterr().err
        failed = f"env 1 failed in step (seed {FAULTY_SEED}, step 3 of its episode, action "
        assert failed in said
        assert "ValueError: the well is dry" in said
        assert ", in _go_wrong" in said
        assert engine.faults.restarts == 1

    def test_an_actor_that_is_killed_is_replaced(self, capsys):
        engine = engine_of(f"{THIS}:Faulty", fault="die")
        assert whole(collect(engine))
        said = capsys.readouterr().err
        assert ") was killed or crashed " in said
        assert len(said.splitlines()) == 1
        assert engine.faults.restarts == 1

    def test_all_that_a_dead_actor_had_to_do_counts_as_one_death(self, capsys):
        engine = engine_of(f"{THIS}:Faulty", num_envs=48, workers=1, fault="die")
        assert whole(collect(engine), num_envs=48)
        assert engine.faults.restarts == 1

    def test_an_actor_that_dies_between_collects_is_replaced(self):
        engine = engine_of("CartPole-v1")
        try:
            assert whole(engine.collect(Scripted(2), 30, Stopwatch()))
            os.kill(engine.workers.actors[0].pid, signal.SIGKILL)
            assert whole(engine.collect(Scripted(2), 30, Stopwatch()))
        finally:
            engine.close()

    def test_an_env_that_hangs_is_killed_after_the_deadline(self, capsys):
        engine = engine_of(f"{THIS}:Faulty", fault="hang", faults=Faults(step_deadline=2))
        begun = time.monotonic()
        assert whole(collect(engine))
        assert time.monotonic() - begun < 300
        assert (
            f"hung for 2 s (--step-deadline) and was killed while at env 1 (seed {FAULTY_SEED}), in step 3 of its "
            in (capsys.readouterr().err)
        )

    def test_more_workers_than_cpus_are_refused_with_a_number_that_fits(self):
        with pytest.raises(
            RedlineError, match=r"3 workers need a CPU each, and the Ray cluster has 2\. Try --workers 2"
        ):
            engine_of("CartPole-v1", workers=3)
        assert ray.is_initialized()


# A Ray of our own

SCRIPT = """
import redline.engines as engines
from redline.timing.stopwatch import Stopwatch
from tests.engines.scripted import Scripted

engine = engines.make_engine("ray", "CartPole-v1", 4, 7, {}, engines.Collecting(workers=3))
rollout = engine.collect(Scripted(2), 20, Stopwatch())
engine.close()
print(rollout.rows.shape[1], "envs", flush=True)
"""


def test_a_ray_of_our_own_says_nothing_and_leaves_nothing_behind():
    mark = secrets.token_hex(8)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=root,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("4 envs\n", "", 0)
    assert wait_until(lambda: not processes_marked(mark), seconds=10)


# Addresses


def test_a_missing_ray_gives_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RedlineError, match=r"pip install 'redline\[ray\]'"):
        engine_of("CartPole-v1")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_a_cluster_that_is_not_there_is_an_error_of_one_line(address):
    with pytest.raises(RedlineError, match=f"^No Ray cluster at '{address}' .*none\\.$"):
        engine_of("CartPole-v1", address=address)


def test_a_port_with_something_else_behind_it_is_an_error_of_one_line():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(RedlineError, match=f"^No Ray cluster at '{address}' .*none\\.$"):
            engine_of("CartPole-v1", address=address)
        assert time.monotonic() - begun < 100


# A cluster


@pytest.fixture
def cluster(request):
    """A head that runs nothing, to add nodes to; it takes two seconds to notice that one is gone."""
    from ray.cluster_utils import Cluster

    quick = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_timeout_ms": 1000,
        "health_check_failure_threshold": 3,
    }
    dashboard = getattr(request, "param", False)
    head = {"num_cpus": 0, "include_dashboard": dashboard, "_system_config": quick}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


def test_when_a_node_dies_the_actors_that_are_left_take_its_envs(cluster, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(on_ray, "ROOM_SECONDS", 2.0)
    nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
    engine = engine_of(f"{THIS}:Marking", address=cluster.address, folder=str(tmp_path))
    rollouts: list[Rollout] = []
    thread = threading.Thread(target=lambda: rollouts.append(collect(engine)))
    thread.start()
    assert wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    cluster.remove_node(nodes[0], allow_graceful=False)
    thread.join(timeout=300)
    assert whole(rollouts[0])
    said = capsys.readouterr().err
    assert "was lost with its node" in said
    assert "cannot be started again (the Ray cluster has no CPU for it" in said
    assert engine.faults.restarts == 1
    assert not ray.is_initialized()


@pytest.mark.parametrize("cluster", [None], indirect=True, ids=["with a dashboard"])
def test_a_cluster_of_three_nodes_that_loses_its_dashboard_goes_on(cluster, tmp_path, capsys):
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    engine = engine_of(f"{THIS}:Marking", address=cluster.address, folder=str(tmp_path))
    rollouts: list[Rollout] = []
    thread = threading.Thread(target=lambda: rollouts.append(collect(engine)))
    thread.start()
    assert wait_until(lambda: len(list(tmp_path.iterdir())) == 2)  # in the middle of episodes
    dashboards = [each.process for each in cluster.head_node.all_processes["dashboard"]]
    assert dashboards
    for process in dashboards:
        process.kill()
        process.wait()
    thread.join(timeout=300)
    assert whole(rollouts[0])
    assert engine.faults.restarts == 0
    assert "redline:" not in capsys.readouterr().err


@pytest.mark.parametrize("ours", [True, False])
def test_an_actor_that_is_slow_to_begin_is_waited_for_on_a_cluster_of_our_own(ours, monkeypatch):
    seconds = iter(range(1000))
    monkeypatch.setattr(on_ray.time, "monotonic", lambda: next(seconds))
    slow = SimpleNamespace(
        wait=lambda refs, num_returns=1, timeout=0: (refs if next(seconds) > 180 else [], []),
        get=lambda ref: (1, None), kill=lambda actor: None, cluster_resources=lambda: {"CPU": 2.0},
        exceptions=ray.exceptions,
    )  # fmt: skip
    workers = object.__new__(on_ray.RayWorkers)
    workers.num_workers, workers._ray, workers._ours, workers._faults = 1, slow, ours, Supervisor(Faults(), 1, 0)
    workers.actors = {0: on_ray._RayActor(None, None)}
    if ours:
        workers._wait_until_up(0, first=True)
        assert workers.actors[0].pid == 1
    else:
        with pytest.raises(RedlineError, match=r"0 of 1 workers came up within 60 s: .*others use them"):
            workers._wait_until_up(0, first=True)


def test_a_ray_that_does_not_start_leaves_nothing_behind():
    begun: list[subprocess.Popen] = []

    def init(**_: object) -> None:
        begun.append(subprocess.Popen(["sleep", "1000"]))
        raise Exception("The current node timed out during startup.\nOr so.")

    slow = SimpleNamespace(init=init, shutdown=lambda: None)
    with pytest.raises(RedlineError, match=r"^Ray did not start \(The current node timed out.*less busy"):
        _start(slow, 2)
    assert begun[0].wait(60) == -signal.SIGKILL


def agent_of_a_stand_in(tmp_path: Path) -> tuple[SimpleNamespace, Callable[[], int]]:
    """A Ray whose one process has started an agent, which does not notice when that is gone; and the agent's number."""
    begun: list[subprocess.Popen] = []

    def init(**_: object) -> None:
        begun.append(subprocess.Popen(["bash", "-c", f"sleep 1000 & echo $! > {tmp_path}/agent; wait"]))
        while not (tmp_path / "agent").exists() or not (tmp_path / "agent").read_text().strip():
            time.sleep(0.01)

    def shutdown() -> None:
        for each in begun:
            each.kill()
            each.wait()

    return SimpleNamespace(init=init, shutdown=shutdown), lambda: int((tmp_path / "agent").read_text())


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_gone_soon(pid: int) -> bool:
    limit = time.monotonic() + 30
    while is_there(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    return not is_there(pid)


def test_agents_of_a_cluster_of_our_own_end_with_it(tmp_path):
    stand_in, agent = agent_of_a_stand_in(tmp_path)
    _start(stand_in, 2)
    assert is_there(agent())
    disconnect(stand_in)
    assert is_gone_soon(agent())


def test_who_is_interrupted_while_ray_starts_leaves_nothing_behind(tmp_path):
    stand_in, agent = agent_of_a_stand_in(tmp_path)
    start = stand_in.init

    def interrupted(**options: object) -> None:
        start(**options)
        raise KeyboardInterrupt

    stand_in.init = interrupted
    with pytest.raises(KeyboardInterrupt):
        _start(stand_in, 2)
    assert is_gone_soon(agent())
