"""A worker's side of the pipe: the requests it understands, and what it does with each.

Whether arrays travel through the pipe, too, or lie in memory that both sides see, is settled by the first request.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from redline.engines.faults import EnvFailed, Failure
from redline.engines.spec import Snapshot, Spaces, Spec
from redline.engines.workers.batched_envs import BatchedEnvs
from redline.engines.workers.fork_server import end_with_main
from redline.engines.workers.shared_memory import SharedMemory
from redline.engines.workers.single_envs import SingleEnvs
from redline.engines.workers.status import RESET, STEP, WorkerStatus, cells_of, status_in
from redline.engines.workers.step_buffers import StepBuffers
from redline.engines.workers.stepping import EnvInfo, HeldEnvs, Info, StepReport, StepTimes
from redline.errors import RedlineError, told_by

TELL_SECONDS = 0.0005  # how long a worker may keep to itself that an env is ready

# Requests. A place is an env's number among those of the worker.


class UseBuffers(NamedTuple):
    """Write into arrays of these spaces: rows of shared ones, whose descriptor follows, or ones that are sent back."""

    spaces: Spaces
    num_envs: int  # of the whole engine
    first: int  # row of the worker's first env
    last: int
    shared: bool


class Reset(NamedTuple):
    """Begin new episodes in some of the envs."""

    places: list[int]
    seeds: list[int | None]
    options: Info | None = None


class StepAll(NamedTuple):
    """Play one step in all envs, with the actions that are sent along, or with those in the buffers."""

    actions: np.ndarray | None = None


class ResetEach(NamedTuple):
    """Begin new episodes in some of the envs, telling of each as it is done."""

    places: list[int]
    seeds: list[int | None]


class StepEach(NamedTuple):
    """Play one step in some of the envs, telling of each as it is done."""

    places: list[int]


class TakeSnapshot(NamedTuple):
    """Tell the state of the envs."""


class Restore(NamedTuple):
    """Put the envs into a state they were in."""

    snapshot: Snapshot


class Close(NamedTuple):
    """Close the envs and end."""


Request = UseBuffers | Reset | StepAll | ResetEach | StepEach | TakeSnapshot | Restore | Close
STEP_IN_BUFFERS = bytes(reduction.ForkingPickler.dumps(StepAll()))
"""The request that is made more often than all others together, as it goes through the pipe."""

# Answers


class StepProgress(NamedTuple):
    """The part of a request for each of some envs that a worker has done since it last told."""

    places: list[int]
    reports: list[StepReport]
    stepped: bool  # else reset


PlainTimes = tuple[int, int, int, int]
PackedInfo = tuple[int, bytes]  # env and infos: pickled one by one, so that one that cannot be read fails alone
Packed = tuple[StepReport | PlainTimes, tuple[np.ndarray, ...] | None, list[PackedInfo]]
"""An answer to `Reset` or `StepAll` in the pipe: the report, the arrays where they are not shared, and the infos.

A report that holds nothing but times, as nearly all do, goes as plain numbers, which are unpickled four times as fast.
"""


def unpack(packed: Packed, seeds: list[int]) -> StepReport:
    """The report of an answer, on the other side. An env whose infos cannot be read has failed."""
    report, _, packed_infos = packed
    if not isinstance(report, StepReport):
        return StepReport(StepTimes(*report), [], {}, [])
    infos, failures = list[EnvInfo](), list(report.failures)
    for env, pickled in packed_infos:
        try:
            infos.append(EnvInfo(env, *pickle.loads(pickled)))
        except Exception as error:
            what = f"it was pickled but cannot be read: {told_by(error)}"
            failures.append(Failure(env, "its info", what, seeds[env], 0))
    return report._replace(infos=infos, failures=failures)


# The process


class Assignment(NamedTuple):
    """All that a new worker must know: who it is, and which envs it holds. It begins by making env `first`."""

    worker: int
    pipe: Connection
    board: SharedMemory
    spec: Spec
    ids: list[int]
    first: int
    seed: int
    infos: bool
    batched: bool


def work(assignment: Assignment) -> None:
    """Make envs, tell their spaces, then answer requests until told to close or until nobody is there."""
    end_with_main()
    pipe, ids = assignment.pipe, assignment.ids
    status = status_in(cells_of(assignment.board), assignment.worker)
    try:
        envs = make_group(assignment, status)
        spaces = envs.make(assignment.seed, ids.index(assignment.first))
    except EnvFailed as failed:
        pipe.send(failed.failure)
        return
    except RedlineError as error:
        pipe.send(RedlineError(str(error)))
        return
    _send_spaces(pipe, spaces, ids)
    with contextlib.suppress(EOFError, OSError):
        Child(pipe, envs).run()
    envs.close()


def make_group(assignment: Assignment, status: WorkerStatus) -> HeldEnvs:
    """The envs of a worker: as one batch where their world is compiled and they may step together."""
    if assignment.batched and assignment.spec.native:
        return BatchedEnvs(assignment.spec, assignment.ids, status)
    return SingleEnvs(assignment.spec, assignment.ids, status, assignment.infos)


def _send_spaces(pipe: Connection, spaces: Spaces, ids: list[int]) -> None:
    try:
        pipe.send(spaces)
    except Exception as error:
        pipe.send(RedlineError(f"The spaces of env {ids[0]} cannot be sent to another process: {error}"))


class Child:
    """Answers requests, each kind by a method."""

    def __init__(self, pipe: Connection, envs: HeldEnvs) -> None:
        self._pipe, self._envs = pipe, envs
        self._send_arrays = False
        self._all = list(range(len(envs.ids)))
        self._answers: dict[type, Callable[[Any], None]] = {
            UseBuffers: self._use_buffers,
            Reset: self._reset,
            StepAll: self._step_all,
            ResetEach: self._reset_each,
            StepEach: self._step_each,
            TakeSnapshot: self._take_snapshot,
            Restore: self._restore,
        }

    def run(self) -> None:
        """Answer until told to close."""
        while True:
            request: Request = self._pipe.recv()
            if isinstance(request, Close):
                return
            self._answers[type(request)](request)

    def _use_buffers(self, request: UseBuffers) -> None:
        spaces, first, last = request.spaces, request.first, request.last
        if request.shared:
            whole, memory = StepBuffers.shared(spaces, request.num_envs, reduction.recv_handle(self._pipe))
            buffers = whole.rows(slice(first, last))
            memory.close()
        else:
            buffers = StepBuffers.local(spaces, last - first)
        self._send_arrays = not request.shared
        self._envs.use(buffers, spaces)

    def _reset(self, request: Reset) -> None:
        self._send(RESET, self._envs.reset(request.places, request.seeds, request.options))

    def _step_all(self, request: StepAll) -> None:
        if request.actions is not None:
            self._envs.buffers.actions[:] = request.actions
        self._send(STEP, self._envs.step(self._all))

    def _reset_each(self, request: ResetEach) -> None:
        for k, seed in zip(request.places, request.seeds, strict=True):
            self._pipe.send(StepProgress([k], [self._envs.reset([k], [seed])], stepped=False))

    def _step_each(self, request: StepEach) -> None:
        """Several are told of at once when they are quick."""
        told, done, reports = time.monotonic(), list[int](), list[StepReport]()
        for k in request.places:
            reports.append(self._envs.step([k]))
            done.append(k)
            if time.monotonic() - told > TELL_SECONDS or k == request.places[-1]:
                self._pipe.send(StepProgress(done, reports, stepped=True))
                told, done, reports = time.monotonic(), [], []

    def _take_snapshot(self, request: TakeSnapshot) -> None:
        self._pipe.send(self._envs.snapshot())

    def _restore(self, request: Restore) -> None:
        try:
            self._pipe.send(self._envs.restore(request.snapshot))
        except RedlineError as error:
            self._pipe.send(RedlineError(str(error)))

    def _send(self, phase: int, report: StepReport) -> None:
        arrays = self._envs.buffers.results if self._send_arrays else None
        infos = self._packed_infos(phase, report) if report.infos else []
        times = report.times
        packed: Packed = (times.step, times.reset, times.slowest, times.began), arrays, infos
        if report.failures or report.metrics or infos:
            packed = report._replace(infos=[]), arrays, infos
        self._pipe.send(packed)

    def _packed_infos(self, phase: int, report: StepReport) -> list[PackedInfo]:
        """The infos of a report; an env whose info cannot be pickled has failed, and is added to the report's failures."""
        packed: list[PackedInfo] = []
        for env, *infos in report.infos:
            assert isinstance(self._envs, SingleEnvs)  # compiled worlds send no infos
            try:
                packed.append((env, pickle.dumps(infos, pickle.HIGHEST_PROTOCOL)))
            except Exception as error:
                report.failures.append(self._envs.info_failure(env, phase, error))
        return packed
