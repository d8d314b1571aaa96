"""Ray actors that collect whole episodes, on this machine or on a cluster.

Redline and the env must be importable wherever an actor may run. On this machine they are: an actor searches for modules
where the driver does. On the nodes of a cluster install both, or call `ray.init(runtime_env={"working_dir": …})` first.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from redline.engines.engine import EngineSetup
from redline.engines.episodes import Episodes, NoRoom
from redline.engines.faults import Supervisor, WorkerCrash
from redline.engines.spec import Spec
from redline.engines.workers.episode_player import EpisodePlayer, EpisodeTask, PlayEpisodes, TaskAnswer
from redline.engines.workers.status import MAKE, WorkerStatus
from redline.errors import RedlineError
from redline.on_ray import connect, disconnect
from redline.threads import ONE_THREAD, cores

UP_SECONDS = 60.0
"""Time an actor has on a cluster that others may use, imports included. On our own it has as long as any worker."""
ROOM_SECONDS = 20.0
"""Time the cluster has to find room for an actor that died, when it has fewer CPUs left than we need."""
LOST_SECONDS = 30.0
"""Time Ray has to find out whether an actor it cannot reach is dead: a lost node is declared dead after some 15 s."""
SILENT_SECONDS = 30.0
"""An actor may always take this long to say what it is doing, however short a step's deadline is."""
ANSWER_SECONDS = 0.2
TALKING = "talking"
"""Concurrency group of calls that are answered while an actor plays; its tasks run one by one in a group of their own."""


Reference = Any  # Ray's own, to a result that is to come; Ray may not be installed


def make_ray(setup: EngineSetup) -> Episodes[Reference]:
    """The engine `ray`."""
    address = setup.collecting.ray_address
    return Episodes(setup, lambda faults: RayWorkers(setup.spec, setup.num_workers, faults, address))


class RayWorkers:
    """Every worker is an actor with one CPU. Ray never restarts one by itself: that would splice episodes unseen."""

    def __init__(self, spec: Spec, num_workers: int, faults: Supervisor, address: str | None) -> None:
        self.num_workers, self._faults = num_workers, faults
        self._ray, self._ours = connect(max(cores(), num_workers), address)
        self._status = [WorkerStatus() for _ in range(num_workers)]  # as each worker last reported it
        self._spec: bytes = self._ray.cloudpickle.dumps(spec)  # what the driver's own script defines travels along
        self._actor_class = self._ray.remote(
            num_cpus=1, max_restarts=0, max_task_retries=0, concurrency_groups={TALKING: 1},
            runtime_env={"env_vars": ONE_THREAD},
        )(EpisodeActor)  # fmt: skip
        self.actors: dict[int, _RayActor] = {}
        self._worker_of: dict[Reference, int] = {}
        self._policy, self._policy_ref = b"", self._ray.put(b"")

    def start(self, worker: int) -> None:
        """Wait until a worker is up: one of the first, which begin side by side, or a new one for one that died."""
        first = worker not in self.actors or self.actors[worker].pid is None
        if not self.actors:
            self._require_cpus()
            self.actors = {each: self._launch(each) for each in range(self.num_workers)}
        elif not first:
            self._kill(worker)
            self._worker_of = {handle: other for handle, other in self._worker_of.items() if other != worker}
            self.actors[worker] = self._launch(worker)
        self._wait_until_up(worker, first)

    def _launch(self, worker: int) -> _RayActor:
        self._status[worker].clear()
        paths = [os.path.abspath(path) for path in sys.path]
        actor = self._actor_class.remote(self._spec, paths)
        return _RayActor(actor, actor.introduce.remote())

    def _wait_until_up(self, worker: int, first: bool) -> None:
        """Learn where a new actor is. Only room can be missing after a death, but anything at first."""
        ray, actor, begun = self._ray, self.actors[worker], time.monotonic()
        while not ray.wait([actor.introduced], timeout=1.0)[0]:
            waited = time.monotonic() - begun
            crowded = not first and waited > ROOM_SECONDS and self._cpus() < len(self._alive())
            if crowded or waited > self._patience():
                no_cpu = NoRoom(f"the Ray cluster has no CPU for it after {waited:.0f} s")
                error = self._too_busy() if first else no_cpu
                self._kill(worker)
                raise error
        try:
            actor.pid, actor.node = ray.get(actor.introduced)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().split("\n")[-1].strip()
            if not first:
                raise NoRoom(f"its new actor did not come up: {reason}") from error
            raise RedlineError(
                f"An actor on Ray did not come up: {reason}. Redline must be installed on every node of the cluster."
            ) from error

    def _patience(self) -> float:
        """Seconds until an actor must be up. On a cluster of our own nobody has its CPU: if it is slow, the machine is."""
        return self._faults.start_deadline if self._ours else UP_SECONDS

    def _require_cpus(self) -> None:
        total = self._cpus()
        if total < self.num_workers:
            hint = f"Try --workers {total}" if total else "Start a node with --num-cpus 1 or more"
            raise RedlineError(f"{self.num_workers} workers need a CPU each, and the Ray cluster has {total}. {hint}.")

    def _too_busy(self) -> RedlineError:
        introduced = [actor.introduced for actor in self.actors.values()]
        up = len(self._ray.wait(introduced, num_returns=len(introduced), timeout=0)[0])
        hint = f"Try --workers {up}" if up else "Try again when others are done"
        why = "this machine is busy" if self._ours else f"the Ray cluster has {self._cpus()} CPUs, and others use them"
        return RedlineError(
            f"{up} of {self.num_workers} workers came up within {self._patience():.0f} s: {why}. {hint}."
        )

    def _cpus(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def _alive(self) -> list[int]:
        """Workers that hold a CPU, or are waiting for one."""
        return [worker for worker, actor in self.actors.items() if not actor.gone]

    def submit(self, worker: int, task: EpisodeTask) -> Reference:
        """Queue a task. The policy is the same for all tasks of a collect, so it goes to Ray's object store once."""
        if isinstance(task, PlayEpisodes):
            if task.policy is not self._policy:
                self._policy, self._policy_ref = task.policy, self._ray.put(task.policy)
            task = task._replace(policy=b"")
        handle = self.actors[worker].actor.carry_out.remote(task, self._policy_ref)
        self._worker_of[handle] = worker
        return handle

    def wait(self, handles: list[Reference], timeout: float) -> list[Reference]:
        """Those that are done, one of each worker: when a worker dies all it had to do fails, and that is one death."""
        wait = self._ray.wait
        if not wait(handles, num_returns=1, timeout=timeout)[0]:
            return []
        done = set(wait(handles, num_returns=len(handles), timeout=0)[0])
        first_of = {self._worker_of[handle]: handle for handle in reversed(handles) if handle in done}
        return [handle for handle in handles if handle in first_of.values()]

    def outcome(self, handle: Reference) -> TaskAnswer | WorkerCrash:
        """The answer to a task, or how its worker died."""
        worker, lost = self._worker_of.pop(handle), self._ray.exceptions
        try:
            answer: TaskAnswer = pickle.loads(self._ray.get(handle))
            self._status[worker].clear()  # what it reported during that task is over
            return answer
        except lost.ActorUnavailableError:
            self._find_out(worker)
        except lost.OutOfMemoryError:
            self.actors[worker].killed = "was killed by Ray, whose node ran out of memory (try fewer --workers),"
        except (lost.RayActorError, lost.WorkerCrashedError, lost.NodeDiedError, lost.ObjectLostError):
            pass
        return self._death(worker)

    def _find_out(self, worker: int) -> None:
        """Wait until it is known what became of an actor that Ray cannot reach. If it comes back, its task is lost still."""
        ray, actor = self._ray, self.actors[worker]
        until = time.monotonic() + LOST_SECONDS
        while (left := until - time.monotonic()) > 0:
            try:
                ray.get(actor.ask(), timeout=left)
                break
            except ray.exceptions.ActorUnavailableError:
                time.sleep(ANSWER_SECONDS)
            except ray.exceptions.RayActorError:  # dead, and Ray knows it
                return
            except ray.exceptions.GetTimeoutError:
                break
        actor.killed = "could not be reached and was given up"

    def _death(self, worker: int) -> WorkerCrash:
        actor, status = self.actors[worker], self._status[worker]
        self._kill(worker)
        how = actor.killed or (
            f"was lost with its node {actor.node.host}" if self._node_is_lost(actor) else "was killed or crashed"
        )
        env, during, step, action = status.doing
        seed = None if env is None else self._faults.seeds[env]
        return WorkerCrash(worker, actor.pid, how, env, during, seed, step, action)

    def _node_is_lost(self, actor: _RayActor) -> bool:
        return any(node["NodeID"] == actor.node.id and not node["Alive"] for node in self._ray.nodes())

    def end_if_hung(self, worker: int) -> bool:
        """Kill a worker that has been at one step for too long, or does not answer any more."""
        actor, status, deadline = self.actors[worker], self._status[worker], self._faults.deadline
        silent = self._ask(worker)
        if actor.killed:
            return False
        limit = max(deadline, self._faults.start_deadline) if status.phase == MAKE else deadline
        if not silent and status.busy_seconds > limit:
            option = " (--step-deadline)" if limit == deadline else ""
            actor.killed = f"hung for {limit:g} s{option} and was killed"
        elif silent > max(limit, SILENT_SECONDS):
            actor.killed = f"did not answer for {silent:.0f} s and was killed"
        else:
            return False
        self._kill(worker)
        return True

    def _ask(self, worker: int) -> float:
        """Ask a worker what it is doing. Returns for how many seconds it has owed us an answer."""
        ray, actor = self._ray, self.actors[worker]
        if actor.question is None:
            actor.question, actor.asked = actor.ask(), time.monotonic()
        if not ray.wait([actor.question], timeout=ANSWER_SECONDS)[0]:
            return time.monotonic() - actor.asked
        question, actor.question = actor.question, None
        with contextlib.suppress(ray.exceptions.RayError):  # it is dead: its tasks will say so
            cells, busy_seconds = ray.get(question)
            _note(self._status[worker], cells, busy_seconds)
        return 0.0

    def _kill(self, worker: int) -> None:
        actor = self.actors[worker]
        actor.gone = True
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor.actor)

    def close(self) -> None:
        """End all actors, and Ray with them if it was us who connected."""
        if self._ray.is_initialized():
            for worker in self._alive():
                self._kill(worker)
        if self._ours:
            self._ours = False
            disconnect(self._ray)
        self.actors.clear()


class _Node(NamedTuple):
    id: str
    host: str


NOWHERE = _Node("", "")


@dataclass
class _RayActor:
    """A worker as the driver knows it."""

    actor: Any
    introduced: Reference  # to its pid and its node
    pid: int | None = None
    node: _Node = NOWHERE
    question: Reference | None = None  # what it is doing, while it has not answered
    asked: float = 0.0
    killed: str = ""  # why, if by us
    gone: bool = False

    def ask(self) -> Reference:
        """Have it say what it is doing."""
        return self.actor.status.options(concurrency_group=TALKING).remote()


def _note(status: WorkerStatus, cells: tuple[int, ...], busy_seconds: float) -> None:
    """Write down what a worker elsewhere, whose clock is not ours, says it is doing."""
    for k, cell in enumerate(cells):
        status.cells[k] = cell
    status.cells[1] = time.monotonic_ns() - int(busy_seconds * 1e9)


class EpisodeActor:
    """The inside of an actor."""

    def __init__(self, spec: bytes, paths: list[str]) -> None:
        sys.path += [path for path in paths if path not in sys.path]
        self._status = WorkerStatus()
        self._player = EpisodePlayer(pickle.loads(spec), self._status)

    def introduce(self) -> tuple[int, _Node]:
        """Its process and node."""
        import ray

        return os.getpid(), _Node(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address())

    def status(self) -> tuple[tuple[int, ...], float]:
        """What it is doing, and for how long it has been."""
        return tuple(self._status.cells), self._status.busy_seconds

    def carry_out(self, task: EpisodeTask, policy: bytes) -> bytes:
        """Play. Answers travel pickled: arrays that Ray hands over itself are read-only there."""
        if isinstance(task, PlayEpisodes):
            task = task._replace(policy=policy)
        return pickle.dumps(self._player.carry_out(task), pickle.HIGHEST_PROTOCOL)
