"""Ray actors that collect whole episodes, on this machine or on a cluster.

Redline and the env must be importable wherever an actor may run. On this machine they are: an actor searches for modules
where the driver does. On the nodes of a cluster install both, or call `ray.init(runtime_env={"working_dir": …})` first.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import sys
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from redline.engines.crew import START_SECONDS
from redline.engines.episodes import Host, NoRoom, Task
from redline.engines.faults import Death, Supervisor
from redline.engines.memory import SharedMemory
from redline.engines.slots import MAKE, Spec, Status
from redline.errors import RedlineError
from redline.on_ray import connect
from redline.threads import ONE_THREAD, cores

UP_SECONDS = 60.0
"""Time an actor has to come up, imports included."""
ROOM_SECONDS = 20.0
"""Time the cluster has to find room for an actor that died, when it has fewer CPUs left than we need."""
LOST_SECONDS = 30.0
"""Time Ray has to find out whether an actor it cannot reach is dead: a lost node is declared dead after some 15 s."""
SILENT_SECONDS = 30.0
"""An actor may always take this long to say what it is doing, however short a step's deadline is."""
ANSWER_SECONDS = 0.2
TALKING = "talking"
"""Concurrency group of calls that are answered while an actor plays; its tasks run one by one in a group of their own."""


class Actors:
    """Every worker is an actor with one CPU. Ray never restarts one by itself: that would splice episodes unseen."""

    def __init__(self, spec: Spec, num_workers: int, supervisor: Supervisor, address: str | None) -> None:
        self.num_workers, self._supervisor = num_workers, supervisor
        self._ray, self._ours = connect(max(cores(), num_workers), address)
        self._board = _Board(num_workers)
        self._spec: bytes = self._ray.cloudpickle.dumps(spec)  # what the driver's own script defines travels along
        self._player = self._ray.remote(
            num_cpus=1, max_restarts=0, max_task_retries=0, concurrency_groups={TALKING: 1},
            runtime_env={"env_vars": ONE_THREAD},
        )(Player)  # fmt: skip
        self._members: dict[int, _Member] = {}
        self._worker_of: dict[Any, int] = {}
        self._policy, self._policy_ref = b"", self._ray.put(b"")

    def start(self, worker: int) -> None:
        """Wait until a worker is up: one of the first, which begin side by side, or a new one for one that died."""
        first = worker not in self._members or self._members[worker].pid is None
        if not self._members:
            self._require_cpus()
            self._members = {each: self._begin(each) for each in range(self.num_workers)}
        elif not first:
            self._kill(worker)
            self._worker_of = {handle: other for handle, other in self._worker_of.items() if other != worker}
            self._members[worker] = self._begin(worker)
        self._welcome(worker, first)

    def _begin(self, worker: int) -> _Member:
        self._board.clear(worker)
        paths = [os.path.abspath(path) for path in sys.path]
        actor = self._player.remote(self._spec, paths, self._board.address, worker)
        return _Member(actor, actor.hello.remote())

    def _welcome(self, worker: int, first: bool) -> None:
        """Learn where a new actor is. Only room can be missing after a death, but anything at first."""
        ray, member, begun = self._ray, self._members[worker], time.monotonic()
        while not ray.wait([member.hello], timeout=1.0)[0]:
            waited = time.monotonic() - begun
            crowded = not first and waited > ROOM_SECONDS and self._cpus() < len(self._alive())
            if crowded or waited > UP_SECONDS:
                no_cpu = NoRoom(f"the Ray cluster has no CPU for it after {waited:.0f} s")
                error = self._too_busy() if first else no_cpu
                self._kill(worker)
                raise error
        try:
            member.pid, member.node, member.near = ray.get(member.hello)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().split("\n")[-1].strip()
            if not first:
                raise NoRoom(f"its new actor did not come up: {reason}") from error
            raise RedlineError(
                f"An actor on Ray did not come up: {reason}. Redline must be installed on every node of the cluster."
            ) from error

    def _require_cpus(self) -> None:
        total = self._cpus()
        if total < self.num_workers:
            hint = f"Try --workers {total}" if total else "Start a node with --num-cpus 1 or more"
            raise RedlineError(f"{self.num_workers} workers need a CPU each, and the Ray cluster has {total}. {hint}.")

    def _too_busy(self) -> RedlineError:
        hellos = [member.hello for member in self._members.values()]
        up = len(self._ray.wait(hellos, num_returns=len(hellos), timeout=0)[0])
        hint = f"Try --workers {up}" if up else "Try again when others are done"
        return RedlineError(
            f"{up} of {self.num_workers} workers came up within {UP_SECONDS:.0f} s: the Ray cluster has {self._cpus()} "
            f"CPUs, and others use them. {hint}."
        )

    def _cpus(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def _alive(self) -> list[int]:
        """Workers that hold a CPU, or are waiting for one."""
        return [worker for worker, member in self._members.items() if not member.gone]

    def submit(self, worker: int, call: str, task: Task) -> Any:
        """Queue a task. The policy is the same for all tasks of a collect, so it goes to Ray's object store once."""
        if task.policy is not self._policy:
            self._policy, self._policy_ref = task.policy, self._ray.put(task.policy)
        actor = self._members[worker].actor
        handle = actor.carry_out.remote(call, task._replace(policy=b""), self._policy_ref)
        self._worker_of[handle] = worker
        return handle

    def wait(self, handles: list[Any], timeout: float) -> list[Any]:
        """Those that are done, one of each worker: when a worker dies all it had to do fails, and that is one death."""
        wait = self._ray.wait
        if not wait(handles, num_returns=1, timeout=timeout)[0]:
            return []
        done = set(wait(handles, num_returns=len(handles), timeout=0)[0])
        first_of = {self._worker_of[handle]: handle for handle in reversed(handles) if handle in done}
        return [handle for handle in handles if handle in first_of.values()]

    def outcome(self, handle: Any) -> Any:
        """What a task returned, or how its worker died."""
        worker, lost = self._worker_of.pop(handle), self._ray.exceptions
        try:
            answer = pickle.loads(self._ray.get(handle))
            self._finished(worker)
            return answer
        except lost.ActorUnavailableError:
            self._find_out(worker)
        except lost.OutOfMemoryError:
            self._members[worker].killed = "was killed by Ray, whose node ran out of memory (try fewer --workers),"
        except (lost.RayActorError, lost.WorkerCrashedError, lost.NodeDiedError, lost.ObjectLostError):
            pass
        return self._death(worker)

    def _finished(self, worker: int) -> None:
        if self._members[worker].near:
            self._board.status[worker].at_stake = 0
        else:
            self._board.clear(worker)  # what it said while at that task is over

    def _find_out(self, worker: int) -> None:
        """Wait until it is known what became of an actor that Ray cannot reach. If it comes back, its task is lost still."""
        ray, member = self._ray, self._members[worker]
        until = time.monotonic() + LOST_SECONDS
        while (left := until - time.monotonic()) > 0:
            try:
                ray.get(member.ask(), timeout=left)
                break
            except ray.exceptions.ActorUnavailableError:
                time.sleep(ANSWER_SECONDS)
            except ray.exceptions.RayActorError:  # dead, and Ray knows it
                return
            except ray.exceptions.GetTimeoutError:
                break
        member.killed = "could not be reached and was given up"

    def _death(self, worker: int) -> Death:
        member, status = self._members[worker], self._board.status[worker]
        self._kill(worker)
        how = member.killed or (
            f"was lost with its node {member.node.host}" if self._node_is_lost(member) else "was killed or crashed"
        )
        env, during, step, action = status.doing
        seed = None if env is None else self._supervisor.seeds[env]
        lost = status.at_stake if member.near else None  # what others said is old by now
        return Death(worker, member.pid, how, env, during, seed, step, action, lost)

    def _node_is_lost(self, member: _Member) -> bool:
        return any(node["NodeID"] == member.node.id and not node["Alive"] for node in self._ray.nodes())

    def hung(self, worker: int, deadline: float) -> bool:
        """Kill a worker that has been at one step for too long, or does not answer any more."""
        member, status = self._members[worker], self._board.status[worker]
        silent = self._ask(worker)
        if member.killed:
            return False
        limit = max(deadline, START_SECONDS) if status.phase == MAKE else deadline
        up_to_date = member.near or not silent
        if up_to_date and _busy_seconds(status) > limit:
            option = " (--step-deadline)" if limit == deadline else ""
            member.killed = f"hung for {limit:g} s{option} and was killed"
        elif silent > max(limit, SILENT_SECONDS):
            member.killed = f"did not answer for {silent:.0f} s and was killed"
        else:
            return False
        self._kill(worker)
        return True

    def _ask(self, worker: int) -> float:
        """Ask a worker what it is doing. Returns for how many seconds it has owed us an answer."""
        ray, member = self._ray, self._members[worker]
        if member.question is None:
            member.question, member.asked = member.ask(), time.monotonic()
        if not ray.wait([member.question], timeout=ANSWER_SECONDS)[0]:
            return time.monotonic() - member.asked
        question, member.question = member.question, None
        with contextlib.suppress(ray.exceptions.RayError):  # it is dead: its tasks will say so
            cells, busy_seconds = ray.get(question)
            if not member.near:
                self._board.note(worker, cells, busy_seconds)
        return 0.0

    def _kill(self, worker: int) -> None:
        member = self._members[worker]
        member.gone = True
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(member.actor)

    def close(self) -> None:
        """End all actors, and Ray with them if it was us who connected."""
        if self._ray.is_initialized():
            for worker in self._alive():
                self._kill(worker)
        if self._ours:
            self._ours = False
            self._ray.shutdown()
        self._members.clear()
        self._board.close()


class _Node(NamedTuple):
    id: str
    host: str


NOWHERE = _Node("", "")


@dataclass
class _Member:
    """A worker as the driver knows it."""

    actor: Any
    hello: Any  # the answer to be: pid, node, whether it writes to our board
    pid: int | None = None
    node: _Node = NOWHERE
    near: bool = False
    question: Any = None  # what it is doing, while it has not answered
    asked: float = 0.0
    killed: str = ""  # why, if by us
    gone: bool = False

    def ask(self) -> Any:
        return self.actor.status.options(concurrency_group=TALKING).remote()


class _Address(NamedTuple):
    """Where processes of this machine find a board. The token tells whether it is that board indeed."""

    path: str
    num_bytes: int
    token: int


class _Board:
    """What every worker is doing, as far as the driver knows.

    Workers on this machine write it themselves, so that even a crash leaves behind where it happened. Others are asked
    from time to time.
    """

    def __init__(self, num_workers: int) -> None:
        self._memory = SharedMemory((1 + num_workers * Status.FIELDS) * 8)
        self._cells = memoryview(self._memory.map).cast("q")
        self._cells[0] = secrets.randbits(62)
        self.status = [_status_of(worker, self._cells) for worker in range(num_workers)]
        path = f"/proc/{os.getpid()}/fd/{self._memory.fd}"
        self.address = _Address(path, self._memory.num_bytes, self._cells[0])

    def clear(self, worker: int) -> None:
        """Nothing is known of a worker: it begins, or has finished a task."""
        self.status[worker].idle()
        self.status[worker].at_stake = 0

    def note(self, worker: int, cells: tuple[int, ...], busy_seconds: float) -> None:
        """What a worker elsewhere says, whose clock is not ours."""
        known = self.status[worker].cells
        for k, cell in enumerate(cells):
            known[k] = cell
        known[1] = time.monotonic_ns() - int(busy_seconds * 1e9)

    def close(self) -> None:
        self._memory.close()


def _status_of(worker: int, cells: memoryview) -> Status:
    first = 1 + worker * Status.FIELDS
    return Status(cells[first : first + Status.FIELDS])


def _busy_seconds(status: Status) -> float:
    """How long the present step or reset has been going on."""
    return status.silent_seconds(time.monotonic_ns()) if status.phase else 0.0


def _find_board(address: _Address) -> memoryview | None:
    """The cells of the driver's board, where the driver is on this machine."""
    try:
        if not os.readlink(address.path).startswith("/memfd:redline"):
            return None
        cells = memoryview(SharedMemory(address.num_bytes, os.open(address.path, os.O_RDWR)).map).cast("q")
    except (OSError, ValueError):
        return None
    return cells if cells[0] == address.token else None


class Player:
    """The inside of an actor."""

    def __init__(self, spec: bytes, paths: list[str], board: _Address, worker: int) -> None:
        sys.path += [path for path in paths if path not in sys.path]
        cells = _find_board(board)
        self._near = cells is not None
        self._status = Status() if cells is None else _status_of(worker, cells)
        self._host = Host(pickle.loads(spec), self._status)

    def hello(self) -> tuple[int, _Node, bool]:
        """Its process and node, and whether the driver sees by itself what it is doing."""
        import ray

        node = _Node(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address())
        return os.getpid(), node, self._near

    def status(self) -> tuple[tuple[int, ...], float]:
        """What it is doing, and for how long."""
        return tuple(self._status.cells), _busy_seconds(self._status)

    def carry_out(self, call: str, task: Task, policy: bytes) -> bytes:
        """Call the host. Answers travel pickled: arrays that Ray hands over itself are read-only there."""
        return pickle.dumps(getattr(self._host, call)(task._replace(policy=policy)), pickle.HIGHEST_PROTOCOL)
