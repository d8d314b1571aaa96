"""Envs and processes that fail, for real: what is lost, what is said, and that everything else goes on."""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from faulty import LIES, MOST_SEEDS, NUM_ACTIONS, Frail  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv  # noqa: E402
from scripted import Scripted  # noqa: E402

from redline.engines import Collecting, Engine, Faults, episodes, faults, make_engine, vector  # noqa: E402
from redline.engines.faults import EnvTrouble, Failure, Supervisor, WorkerCrash  # noqa: E402
from redline.engines.lockstep import Lockstep  # noqa: E402
from redline.engines.workers import fork_server, parent, status  # noqa: E402
from redline.engines.workers.status import STEP, WorkerStatus  # noqa: E402
from redline.errors import RedlineError  # noqa: E402
from redline.rollout import Rollout  # noqa: E402
from redline.timing.stopwatch import Stopwatch  # noqa: E402

FRAIL = "external:faulty:Frail"
LOCKSTEP = ["serial", "pipes", "shared"]
PROCESSES = ["pipes", "shared", "ready", "pool"]
ENGINES = ["serial", *PROCESSES]
NUM_ENVS, NUM_STEPS, ROUNDS, SEED = 4, 8, 4, 10
DEADLINE = 0.5
PATIENCE = 60.0
"""Seconds that a machine with much else to do may take over what takes it one: an env that hangs does so for 1000."""
EVER = 1000


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that hangs ends, later than all that it may wait for, and nobody waits long for a silent worker."""
    faulthandler.dump_traceback_later(5 * PATIENCE, exit=True)
    monkeypatch.setattr(parent, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(episodes, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(status, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(parent, "CLOSE_SECONDS", 0.5)
    yield
    faulthandler.cancel_dump_traceback_later()


class Played:
    """What some collects came to."""

    def __init__(self, engine: Any, folder: Path, rollouts: list[Rollout]) -> None:
        self.engine, self.faults, self.rollouts = engine, engine.faults, rollouts
        notes = (folder / "episodes").read_text().splitlines() if (folder / "episodes").exists() else []
        self.finished = Counter((int(length), float(total)) for _, _, length, total in map(str.split, notes))
        self.delivered = Counter(
            pair for each in rollouts for pair in zip(each.episode_lengths, each.episode_returns, strict=True)
        )

    def column(self, i: int) -> list[tuple[Any, ...]]:
        """Every step of a column, over all rollouts: observation, action, reward, how it ended."""
        return [
            (*r.observations[r.rows[t, i]], r.actions[t, i], r.rewards[t, i], r.terminated[t, i], r.truncated[t, i])
            for r in self.rollouts
            for t in np.flatnonzero(r.cells()[:, i])
        ]


def play(name: str, folder: Path, rounds: int = ROUNDS, num_envs: int = NUM_ENVS, **options: Any) -> Played:
    """Collect a few times with two workers, and check what must be true whatever happens."""
    faults = options.pop("faults", Faults())
    engine = make(name, folder, faults, num_envs, **options)
    try:
        rollouts = [engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch()) for _ in range(rounds)]
    finally:
        engine.close()
    played = Played(engine, folder, rollouts)
    assert_whole(rollouts)
    assert_finite(rollouts)
    assert_counted(played)
    return played


def make(name: str, folder: Path, faults: Faults, num_envs: int = NUM_ENVS, workers: int = 2, **options: Any) -> Engine:
    collecting = Collecting(workers=workers, faults=faults)
    return make_engine(name, FRAIL, num_envs, SEED, {"folder": str(folder), **options}, collecting)


def assert_whole(rollouts: list[Rollout]) -> None:
    """Columns are episode after episode, each from its first step on; a hole follows an end or begins a rollout."""
    for i in range(min(rollout.rows.shape[1] for rollout in rollouts)):
        due: tuple[float, ...] | None = None
        for rollout in rollouts:
            for t, held in enumerate(rollout.cells()[:, i]):
                if not held:
                    assert due is None or t == 0
                    due = None
                    continue
                who, episode, step = rollout.observations[rollout.rows[t, i]]
                assert (who, episode, step) == due if due else step == 0
                assert rollout.rewards[t, i] == (step + 1) * (1 + rollout.actions[t, i])
                ended = rollout.terminated[t, i] or rollout.truncated[t, i]
                due = None if ended else (who, episode, step + 1)


def assert_finite(rollouts: list[Rollout]) -> None:
    for rollout in rollouts:
        held = rollout.cells()
        assert np.isfinite(rollout.observations).all()
        assert np.isfinite(rollout.rewards[held]).all()
        assert np.isfinite(rollout.values[held]).all()
        assert np.isfinite(rollout.next_values[held & ~rollout.terminated]).all()


def assert_counted(played: Played) -> None:
    """Every episode that was delivered was played, and one that is missing was counted as lost."""
    for rollout in played.rollouts:
        ends = (rollout.terminated | rollout.truncated) & rollout.cells()
        assert ends.sum() == len(rollout.episode_returns)
    assert not played.delivered - played.finished
    assert (played.finished - played.delivered).total() <= played.faults.lost_episodes


@functools.cache
def undisturbed(name: str) -> Played:
    """The same collects when nothing happens."""
    with tempfile.TemporaryDirectory() as folder:
        return play(name, Path(folder))


def assert_neighbours_unmoved(name: str, played: Played, envs: tuple[int, ...]) -> None:
    """Bit for bit what they would have been."""
    calm = undisturbed("pool" if name == "pool" else "serial")
    for i in envs:
        assert played.column(i) == calm.column(i)


# A process that dies


@pytest.mark.parametrize("how", ["sigkill", "segfault", "exit"])
@pytest.mark.parametrize("name", PROCESSES)
def test_a_worker_that_dies_is_replaced_and_the_other_does_not_notice(name, how, tmp_path, capfd):
    played = play(name, tmp_path, fault=how, seeds=(SEED + 1,), step=12)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("redline: ")]
    said = {"sigkill": "was killed by SIGKILL", "segfault": "was killed by SIGSEGV", "exit": "exited with code 3"}
    assert len(lines) == 1
    assert said[how] in lines[0] and "(pid " in lines[0] and "while at env 1 (seed 11), in step" in lines[0]
    assert played.faults.restarts == 1
    missing = (played.finished - played.delivered).total()
    assert missing < played.faults.lost_episodes <= missing + 2
    assert_neighbours_unmoved(name, played, (2, 3))
    lives = {step[0] for step in played.column(1)}
    assert len(lives) == 2  # before and after


@pytest.mark.parametrize("name", PROCESSES)
def test_a_worker_killed_between_two_collects_is_replaced_in_the_next(name, tmp_path, capfd):
    engine = make(name, tmp_path, Faults())
    try:
        first = engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch())
        kill(process_of(engine).pid)
        rest = [engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch()) for _ in range(2)]
        assert_whole([first, *rest])
        assert engine.faults.restarts == 1
        assert "was killed by SIGKILL" in capfd.readouterr().err
    finally:
        engine.close()


@pytest.mark.parametrize("name", PROCESSES)
def test_a_worker_that_is_stopped_while_it_has_nothing_to_do_counts_as_hung(name, tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "THINK_SECONDS", 2.0)
    engine = make(name, tmp_path, Faults(step_deadline=DEADLINE))
    try:
        first = engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch())
        os.kill(process_of(engine).pid, signal.SIGSTOP)
        assert_whole([first, engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch())])
        assert engine.faults.restarts == 1
    finally:
        engine.close()


@pytest.mark.parametrize("name", PROCESSES)
def test_the_death_of_the_fork_server_is_survived(name, tmp_path):
    engine = make(name, tmp_path, Faults())
    try:
        first = engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch())
        kill(forkserver._forkserver._forkserver_pid, *children())
        rest = [engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch()) for _ in range(2)]
        assert_whole([first, *rest])
        assert engine.faults.restarts == 2  # both workers went with it
    finally:
        engine.close()


@pytest.mark.parametrize("name", PROCESSES)
def test_a_worker_that_dies_while_a_failed_env_begins_anew_takes_the_other_episodes_with_it(name, tmp_path):
    played = play(name, tmp_path, fault="raise", seeds=seeds_of(1, 2), step=6, then="sigkill")
    assert played.faults.restarts == 2
    assert played.faults.lost_episodes >= (1 if name == "pool" else 2)
    assert_neighbours_unmoved(name, played, (2, 3))


def test_a_worker_of_many_groups_dies_once(tmp_path):
    engine = make("pool", tmp_path, Faults(), num_envs=20, workers=1, fault="sigkill", seeds=(SEED + 3,), step=12)
    try:
        rollouts = [engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch()) for _ in range(3)]
    finally:
        engine.close()
    played = Played(engine, tmp_path, rollouts)
    assert_whole(rollouts)
    assert_counted(played)
    assert played.faults.restarts == 1
    assert [rollout.rows.shape[1] for rollout in rollouts] == [20] * 3


def kill(pid: int, *others: int) -> None:
    """Kill a process, and wait until it and the others, who go with it, are dead."""
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while any(state(each) not in "ZX" for each in (pid, *others)):
        assert time.monotonic() < until
        time.sleep(0.01)


def state(pid: int) -> str:
    """One letter: R, S, …; Z for a zombie and X for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def process_of(engine: Any) -> Any:
    """The first worker's."""
    if isinstance(engine, episodes.Episodes):
        return engine.workers.processes[0]
    holder = engine.envs if isinstance(engine, Lockstep) else engine
    return holder.env_workers.workers[0].process


# An env that raises


@pytest.mark.parametrize("name", ENGINES)
def test_an_env_that_raises_in_a_step_is_named_with_all_that_helps_to_find_out_why(name, tmp_path, capfd):
    played = play(name, tmp_path, fault="raise", seeds=(SEED + 1,), step=5)
    said = capfd.readouterr().err
    assert "env 1 failed in step (seed 11, step 2 of its episode, action 1): ValueError: the simulator exploded" in said
    assert "in explode" in said and "Traceback (most recent call last)" in said
    assert (played.faults.restarts, played.faults.lost_episodes) == (1, 1)
    assert played.finished == played.delivered
    assert_neighbours_unmoved(name, played, (2, 3) if name == "pool" else (0, 2, 3))


@pytest.mark.parametrize("step", [0, 5])
@pytest.mark.parametrize("name", ENGINES)
def test_an_env_that_raises_in_a_reset_loses_no_episode(name, step, tmp_path, capfd):
    played = play(name, tmp_path, fault="raise", place="reset", seeds=(SEED, SEED + 1), step=step)
    assert "failed in reset (seed 1" in capfd.readouterr().err
    assert (played.faults.restarts, played.faults.lost_episodes) == (1, 0)
    assert played.finished == played.delivered
    assert all(rollout.num_steps == rollout.rows.size for rollout in played.rollouts) or name == "pool"


@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("name", ENGINES)
def test_an_env_that_raises_while_it_is_made_is_made_again(name, skip, tmp_path, capfd):
    played = play(name, tmp_path, fault="raise", place="make", skip=skip)
    said = capfd.readouterr().err
    assert "failed while being made (seed" in said and "in explode" in said
    assert (played.faults.restarts, played.faults.lost_episodes) == (1, 0)
    assert played.finished == played.delivered


@pytest.mark.parametrize("name", ENGINES)
def test_sys_exit_in_an_env_is_a_failure_like_any_other(name, tmp_path, capfd):
    assert play(name, tmp_path, fault="sys.exit", seeds=(SEED + 1,)).faults.restarts == 1
    assert "SystemExit" in capfd.readouterr().err


@pytest.mark.parametrize("name", ENGINES)
def test_an_env_that_keeps_failing_stops_the_run_and_names_the_first_cause(name, tmp_path):
    seeds = seeds_of(1, 6)
    with pytest.raises(EnvTrouble, match=r"Env 1 failed in step .*the simulator exploded.*--max-restarts 2") as caught:
        play(name, tmp_path, fault="raise", seeds=seeds, step=1, times=EVER, faults=Faults(max_restarts=2))
    assert "in explode" in str(caught.value)


@pytest.mark.parametrize("name", ENGINES)
def test_a_constructor_that_always_fails_stops_before_anything_is_played(name, tmp_path):
    with pytest.raises(EnvTrouble, match=r"failed while being made .*the simulator exploded"):
        play(name, tmp_path, fault="raise", place="make", times=EVER, faults=Faults(max_restarts=1))
    assert not children()


@pytest.mark.parametrize("name", ENGINES)
def test_the_budget_is_whole_again_after_a_finished_episode(name, tmp_path):
    seeds = seeds_of(1, EVER)
    played = play(name, tmp_path, fault="raise", seeds=seeds, step=9, times=5, faults=Faults(max_restarts=1), rounds=8)
    assert played.faults.restarts == 5


@pytest.mark.parametrize("name", ENGINES)
def test_fail_stops_at_the_first_failure(name, tmp_path):
    with pytest.raises(EnvTrouble, match=r"Env 1 failed in step \(seed 11, step 2 of its episode, action 1\)"):
        play(name, tmp_path, fault="raise", seeds=(SEED + 1,), faults=Faults("fail"))


@pytest.mark.parametrize("how", ["raise", "sigkill"])
@pytest.mark.parametrize("name", ENGINES)
def test_drop_goes_on_without_the_env(name, how, tmp_path, capfd):
    if (name, how) == ("serial", "sigkill"):
        pytest.skip("there is nobody left to go on")
    played = play(name, tmp_path, fault=how, seeds=(SEED + 1,), faults=Faults("drop"))
    assert "Going on without env 1: 3 envs left" in capfd.readouterr().err
    assert played.faults.dropped.tolist() == [False, True, False, False]
    for rollout in played.rollouts[1:]:
        if name == "pool":  # only envs that played have a column
            assert rollout.rows.shape[1] == 3
        else:
            assert rollout.cells()[:, 1].sum() == 0 and rollout.cells()[:, [0, 2, 3]].all()
    if name != "pool":
        assert_neighbours_unmoved(name, played, (2, 3))


@pytest.mark.parametrize("place", ["make", "reset"])
@pytest.mark.parametrize("name", ENGINES)
def test_an_env_that_never_begins_can_be_dropped(name, place, tmp_path):
    """It is the first of its worker, which others learn their spaces from."""
    played = play(name, tmp_path, fault="raise", place=place, seeds=(SEED,), step=0, faults=Faults("drop"))
    assert played.faults.dropped.sum() == 1
    assert played.faults.dropped[0] or place == "make"


@pytest.mark.parametrize("name", PROCESSES)
def test_a_worker_whose_envs_were_all_dropped_is_not_missed(name, tmp_path):
    both = (*seeds_of(0, 9), *seeds_of(1, 9))
    played = play(name, tmp_path, fault="sigkill", seeds=both, times=EVER, faults=Faults("drop"))
    assert played.faults.dropped.tolist() == [True, True, False, False]
    if name != "pool":
        assert_neighbours_unmoved(name, played, (2, 3))


@pytest.mark.parametrize("name", ENGINES)
def test_dropping_the_last_env_stops(name, tmp_path):
    with pytest.raises(EnvTrouble, match="It was the last env that was left"):
        play(name, tmp_path, fault="raise", seeds=tuple(range(SEED, SEED + 4)), times=EVER, faults=Faults("drop"))


def seeds_of(env: int, lives: int) -> tuple[int, ...]:
    """The seeds of an env's first lives."""
    supervisor = Supervisor(
        Faults(max_restarts=EVER), NUM_ENVS, SEED, warn=lambda line: None, sleep=lambda seconds: None
    )
    seeds = [supervisor.seeds[env]]
    for _ in range(lives - 1):
        supervisor.decide(Failure(env, "step", "", 0, 0), [env], 0)
        seeds.append(supervisor.seeds[env])
    return tuple(seeds)


def test_pauses_between_restarts_grow_and_have_an_end():
    pauses: list[float] = []
    supervisor = Supervisor(Faults(max_restarts=12), 1, 0, warn=lambda line: None, sleep=pauses.append)
    for _ in range(12):
        supervisor.decide(Failure(0, "step", "it broke", 0, 0), [0], 1)
    assert pauses[:4] == [0.0, 0.2, 0.4, 0.8] and pauses[-1] == 5.0
    supervisor.finished([0])
    supervisor.decide(WorkerCrash(0, 1, "was killed by SIGKILL", 0), [0], 1)
    assert pauses[-1] == 0.0 and supervisor.lost_episodes == 13


def test_envs_that_fail_once_each_do_not_stop_the_run():
    trace = '  File "env.py", line 3, in step'
    supervisor = Supervisor(Faults(), 2, 0, warn=lambda line: None, sleep=lambda seconds: None)
    for env in range(2):
        failure = Failure(env, "step", "ValueError: rare", 0, 0, traceback=trace)
        assert supervisor.decide(failure, [env], 1) == [env]
    with pytest.raises(EnvTrouble, match="same place"):
        supervisor.decide(Failure(0, "step", "ValueError: rare", 0, 0, traceback=trace), [0], 1)


def test_suspension_never_counts_as_a_hang(monkeypatch):
    clock = [0]
    monkeypatch.setattr(status, "WATCH_SECONDS", 1.0)
    monkeypatch.setattr("redline.engines.workers.status.time.monotonic_ns", lambda: clock[0])
    worker = WorkerStatus()
    clock[0] = int(1e9)
    worker.at(0, STEP)
    assert [worker.silent_seconds(0) for _ in range(30)] == list(range(30))
    clock[0] += int(1000e9)  # all processes were suspended, as by a batch system
    assert worker.silent_seconds(0) == 30.0
    worker.at(0, STEP, step=1)
    assert worker.silent_seconds(0) == 0.0


def test_no_two_lives_share_a_seed():
    every = [seed for env in range(NUM_ENVS) for seed in seeds_of(env, 50)]
    assert len(set(every)) == len(every)


# An env that hangs


@pytest.mark.parametrize("how", ["sleep", "hold", "stop"])
@pytest.mark.parametrize("name", PROCESSES)
def test_a_step_that_hangs_is_ended_by_the_deadline(name, how, tmp_path, capfd):
    played = play(name, tmp_path, fault=how, seeds=(SEED + 1,), step=12, faults=Faults(step_deadline=DEADLINE))
    said = capfd.readouterr().err
    assert f"hung for {DEADLINE:g} s (--step-deadline) and was killed while at env 1 (seed 11), in step" in said
    assert played.faults.restarts == 1
    assert_neighbours_unmoved(name, played, (2, 3))


@pytest.mark.parametrize(("env", "step"), [(0, 0), (1, 0), (1, 5)])
@pytest.mark.parametrize("name", PROCESSES)
def test_a_reset_that_hangs_is_ended_by_the_deadline(name, env, step, tmp_path, capfd):
    options = {"fault": "hold", "place": "reset", "seeds": (SEED + env,), "step": step}
    played = play(name, tmp_path, faults=Faults(step_deadline=DEADLINE), **options)
    assert (
        f"(--step-deadline) and was killed while at env {env} (seed {SEED + env}), in reset" in capfd.readouterr().err
    )
    assert played.faults.restarts == 1
    missing = (played.finished - played.delivered).total()
    assert (missing > 0) == (step > 0)  # the episode that env 1 had just ended, which nobody was told of
    assert missing <= played.faults.lost_episodes <= missing + env  # only env 0 can have been in the middle of one


@pytest.mark.parametrize("skip", [0, 3])
@pytest.mark.parametrize("name", PROCESSES)
def test_a_constructor_that_hangs_is_ended_but_has_more_time(name, skip, tmp_path, capfd, monkeypatch):
    def patience(
        self: Supervisor,
    ) -> float:  # short for the one that hangs, not for who comes after it or is slow to begin
        return 1.2 if (tmp_path / "struck-0").exists() and not self.restarts else PATIENCE

    monkeypatch.setattr(Supervisor, "start_deadline", property(patience))
    options = {"fault": "hold", "place": "make", "skip": skip}
    played = play(name, tmp_path, faults=Faults(step_deadline=DEADLINE), **options)
    assert "hung for 1.2 s and was killed while at env" in capfd.readouterr().err
    assert played.faults.restarts == 1


def test_the_deadline_follows_the_slowest_step_and_is_never_short():
    supervisor = Supervisor(Faults(), 1, 0)
    assert supervisor.deadline == 30.0
    supervisor.saw(1.0)
    assert supervisor.deadline == 30.0
    supervisor.saw(4.0)
    supervisor.saw(2.0)
    assert supervisor.deadline == 80.0
    assert Supervisor(Faults(step_deadline=1.5), 1, 0).deadline == 1.5


# An env that returns nonsense

SAID = {
    "nan obs": "the observation holds nan at place 1", "inf obs": "the observation holds inf at place 2",
    "long obs": r"the observation has shape \(4,\), but its space says \(3,\)", "scalar obs": r"has shape \(\)",
    "no obs": r"has shape \(\)", "ragged obs": "is no array", "double obs": "dtype float64, but its space says float32",
    "object obs": "dtype object", "stubborn obs": "its answer cannot be used: RuntimeError: not now",
    "endless reward": "the reward is 1000", "nan reward": "the reward is nan", "inf reward": "the reward is inf",
    "huge reward": r"the reward is 1e\+300", "no reward": "the reward is None", "word reward": "the reward is 'much'",
    "array reward": "the reward is array", "no flag": "terminated or truncated is None", "four values": "4 values",
    "nothing": "a NoneType", "no info": "the info is None",
}  # fmt: skip


BASIC_LIES = ["nan obs", "long obs", "huge reward", "no reward", "four values"]


@pytest.mark.parametrize(
    ("name", "lie"),
    [("serial", lie) for lie in SAID] + [(name, lie) for name in PROCESSES for lie in BASIC_LIES],
)
def test_nonsense_is_named_and_never_reaches_the_rollout(name, lie, tmp_path):
    with pytest.raises(EnvTrouble, match=rf"Env 1 failed in step \(seed 11, step 2 .*action 1\): .*{SAID[lie]}"):
        play(name, tmp_path, fault=lie, seeds=(SEED + 1,), faults=Faults("fail"))
    (tmp_path / "struck-0").unlink()
    (tmp_path / "episodes").unlink()
    played = play(name, tmp_path, fault=lie, seeds=(SEED + 1,), rounds=2)
    assert played.faults.restarts == 1


@pytest.mark.parametrize("step", [0, 5])
@pytest.mark.parametrize("lie", ["nan obs", "long obs", "double obs"])
@pytest.mark.parametrize("name", ENGINES)
def test_nonsense_from_a_reset_is_named_and_loses_no_episode(name, lie, step, tmp_path, capfd):
    played = play(name, tmp_path, fault=lie, place="reset", seeds=(SEED + 1,), step=step, rounds=2)
    assert "env 1 failed in reset (seed 11): the observation" in capfd.readouterr().err
    assert (played.faults.restarts, played.faults.lost_episodes) == (1, 0)


@pytest.mark.parametrize("name", ["serial", "shared"])
def test_an_error_that_cannot_say_what_it_is_is_told_all_the_same(name, tmp_path, capfd):
    played = play(name, tmp_path, fault="wordless", seeds=(SEED + 1,), rounds=2)
    assert "Wordless: (its words raise an error themselves)" in capfd.readouterr().err
    assert played.faults.restarts == 1


def test_every_lie_is_told():
    assert set(LIES) == {*SAID, "unpicklable info", "unreadable info"}


# Our own simulators, a slice of them in each worker


@pytest.mark.parametrize("answer", ["restart", "drop"])
@pytest.mark.parametrize("name", ["pipes", "shared", "ready", "pool"])
def test_a_slice_of_a_simulator_is_replaced_too(name, answer):
    killed, calm = (simulated(name, Faults(answer)) for _ in range(2))
    try:
        first, expected = (engine.collect(Scripted(145), 6, Stopwatch()) for engine in (killed, calm))
        assert np.array_equal(first.actions, expected.actions)
        kill(process_of(killed).pid)
        for _ in range(2):
            rollout, expected = (engine.collect(Scripted(145), 6, Stopwatch()) for engine in (killed, calm))
            if answer == "restart" or name != "pool":
                assert np.array_equal(rollout.actions[:, 2:], expected.actions[:, 2:])
                assert np.array_equal(rollout.rewards[:, 2:], expected.rewards[:, 2:])
        assert (killed.faults.restarts, killed.faults.dropped.sum()) == ((1, 0) if answer == "restart" else (0, 1))
        assert np.isfinite(rollout.rewards[rollout.cells()]).all()
    finally:
        killed.close()
        calm.close()


def simulated(name: str, faults: Faults) -> Engine:
    options = {"turbo": False, "max_steps": 10}
    return make_engine(name, "cage2", NUM_ENVS, SEED, options, Collecting(workers=2, faults=faults))


@pytest.mark.parametrize("name", ["pipes", "shared"])
def test_envs_whose_worker_is_gone_cannot_be_saved_and_nothing_else_is_saved_instead(name):
    engine = simulated(name, Faults("fail"))
    try:
        engine.collect(Scripted(145), 3, Stopwatch())
        assert engine.snapshot() is not None
        kill(process_of(engine).pid)
        assert engine.snapshot() is None
        with pytest.raises(EnvTrouble, match="was killed by SIGKILL"):
            engine.collect(Scripted(145), 3, Stopwatch())
        assert engine.snapshot() is None  # the other worker was in the middle of a step
    finally:
        engine.close()


@pytest.mark.parametrize("name", ["pipes", "shared"])
def test_a_worker_that_hangs_while_envs_are_saved_is_replaced_and_training_goes_on(name, capfd):
    engine = simulated(name, Faults(step_deadline=1.0))
    try:
        engine.collect(Scripted(145), 3, Stopwatch())
        os.kill(process_of(engine).pid, signal.SIGSTOP)
        assert engine.snapshot() is None
        engine.collect(Scripted(145), 3, Stopwatch())
        assert engine.faults.restarts == 1
        assert engine.snapshot() is not None
    finally:
        engine.close()


# Plain vector envs


@pytest.mark.parametrize("engine", LOCKSTEP)
def test_a_lost_env_shows_as_a_truncated_episode(engine, tmp_path):
    env = framed(engine, tmp_path, fault="raise", seeds=(SEED + 1,), step=2)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    obs, _ = env.reset(seed=SEED)
    actions = np.zeros(NUM_ENVS, np.int64)
    for _ in range(2):
        obs, rewards, terminated, truncated, infos = env.step(actions)
        assert "lost" not in infos
    obs, rewards, terminated, truncated, infos = env.step(actions)
    assert infos["lost"].tolist() == [False, True, False, False]
    assert truncated[1] and not terminated[1] and rewards[1] == 0.0
    assert obs[1].tolist() == [env.faults.seeds[1] % MOST_SEEDS, 0.0, 0.0]
    assert "lost" not in env.step(actions)[4]
    env.close()


@pytest.mark.parametrize("engine", LOCKSTEP)
def test_infos_have_the_form_that_gymnasium_gives_them(engine, tmp_path):
    folders = [tmp_path / "ours", tmp_path / "theirs"]
    for folder in folders:
        folder.mkdir()
    ours = framed(engine, folders[0], infos_given=True)
    theirs = SyncVectorEnv(
        [lambda: Frail(str(folders[1]), infos=True)] * NUM_ENVS, autoreset_mode=AutoresetMode.SAME_STEP
    )
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    pairs = [(ours.reset(seed=SEED), theirs.reset(seed=SEED))]
    for t in range(8):
        actions = np.arange(t, t + NUM_ENVS) % NUM_ACTIONS
        pairs.append((ours.step(actions), theirs.step(actions)))
    for mine, others in pairs:
        for a, b in zip(mine[:-1], others[:-1], strict=True):
            assert np.array_equal(a, b)
        assert_same_infos(mine[-1], others[-1])
    ours.close()
    theirs.close()


def assert_same_infos(mine: dict[str, Any], others: dict[str, Any]) -> None:
    assert mine.keys() == others.keys()
    for name, value in others.items():
        if isinstance(value, dict):
            assert_same_infos(mine[name], value)
        elif name == "final_obs":
            assert all(np.array_equal(a, b) for a, b in zip(mine[name], value, strict=True) if b is not None)
        else:
            assert np.array_equal(mine[name], value) and mine[name].dtype == value.dtype


@pytest.mark.parametrize("lie", ["unpicklable info", "unreadable info"])
@pytest.mark.parametrize("engine", ["pipes", "shared"])
def test_an_info_that_cannot_be_sent_is_named(engine, lie, tmp_path, capfd):
    env = framed(engine, tmp_path, fault=lie, seeds=(SEED + 1,), step=2)
    env.reset(seed=SEED)
    lost = [env.step(np.zeros(NUM_ENVS, np.int64))[4].get("lost", np.zeros(NUM_ENVS)).tolist() for _ in range(5)]
    assert lost == [[False, t == 2, False, False] for t in range(5)]
    said = capfd.readouterr().err
    if lie == "unpicklable info":
        assert "env 1 failed in step (seed 11, step 3 of its episode, action 0): its info cannot be pickled" in said
    else:
        assert "env 1 failed in its info (seed 11): it was pickled but cannot be read: ValueError" in said
    env.close()


@pytest.mark.parametrize("engine", LOCKSTEP)
def test_misuse_is_answered_in_a_sentence(engine, tmp_path):
    env = framed(engine, tmp_path)
    with pytest.raises(RedlineError, match="Call reset first"):
        env.step(np.zeros(NUM_ENVS, np.int64))
    env.reset(seed=SEED)
    with pytest.raises(RedlineError, match=r"Actions of shape \(3,\) do not fit 4 envs: pass shape \(4,\)"):
        env.step(np.zeros(3, np.int64))
    with pytest.raises(RedlineError, match="Actions of dtype float64 do not fit: pass dtype int64"):
        env.step(np.zeros(NUM_ENVS))
    with pytest.raises(RedlineError, match="3 seeds cannot be dealt to 4 envs"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(RedlineError, match="A seed of -1"):
        env.reset(seed=-1)
    env.step(np.zeros(NUM_ENVS, np.int64))
    env.close()
    env.close()
    with pytest.raises(RedlineError, match="These envs are closed"):
        env.step(np.zeros(NUM_ENVS, np.int64))
    with pytest.raises(RedlineError, match="These envs are closed"):
        env.reset()


@pytest.mark.parametrize("engine", LOCKSTEP)
def test_actions_are_those_of_the_action_space(engine, tmp_path):
    env = vector("external:faulty:Shifted", NUM_ENVS, engine, workers=2, folder=str(tmp_path))
    env.reset(seed=SEED)
    assert env.step(np.array([5, 6, 7, 5]))[1].tolist() == [5.0, 6.0, 7.0, 5.0]
    env.close()


@pytest.mark.parametrize("engine", LOCKSTEP)
def test_a_dropped_env_stays_dropped_when_all_are_reset(engine, tmp_path):
    env = framed(engine, tmp_path, Faults("drop"), fault="raise", seeds=(SEED + 1,), step=1)
    for _ in range(2):
        env.reset(seed=SEED)
        for _ in range(3):
            *_, truncated, infos = env.step(np.zeros(NUM_ENVS, np.int64))
        assert infos["lost"].tolist() == [False, True, False, False] and truncated[1]
    env.close()


def framed(
    engine: str, folder: Path, faults: Faults | None = None, infos_given: bool = False, **options: Any
) -> VectorEnv:
    """The env as a plain vector env."""
    given = {"infos": infos_given} if infos_given else {}
    spec = f"{FRAIL}?infos=true" if given else FRAIL
    return vector(spec, NUM_ENVS, engine, workers=2, faults=faults, folder=str(folder), **options)


def test_a_script_needs_no_guard(tmp_path):
    said = run_script(
        """
        import sys
        import redline
        print("begun")
        for engine in ("shared", "pipes"):
            env = redline.vector("external:faulty:Frail", 4, engine, workers=2, folder=sys.argv[1])
            env.reset(seed=0)
            print(env.step(env.action_space.sample())[0].shape)
        """,
        tmp_path,
    )
    assert said.splitlines() == ["begun", "(4, 3)", "(4, 3)"]


# The end of the main process

DRIVER = """
import os, sys, threading
from pathlib import Path
from scripted import Scripted
from redline.engines import make_engine
from redline.timing.stopwatch import Stopwatch

def collect_forever(engine):
    while True:
        engine.collect(Scripted(3), 8, Stopwatch())

folder = Path(sys.argv[1])
engines = []
for name in sys.argv[2:]:
    (folder / name).mkdir()
    options = {"folder": str(folder / name), "fault": "hold", "seeds": (1,), "step": 20}
    engines.append(make_engine(name, "external:faulty:Frail", 4, 0, options))
for engine in engines[1:]:
    threading.Thread(target=collect_forever, args=[engine], daemon=True).start()
collect_forever(engines[0])
"""


CTRL_C = -signal.SIGINT  # to all at once, as from a terminal


@pytest.mark.parametrize("number", [CTRL_C, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_main_process_even_if_envs_hang(number, tmp_path):
    """Every engine has one healthy worker and one that holds the interpreter for ever."""
    names = PROCESSES if number == CTRL_C else PROCESSES[::-1]  # the main thread is at the first
    mark = f"REDLINE_TEST_MARK={tmp_path}"
    main = start_script(DRIVER, tmp_path, *names, REDLINE_TEST_MARK=str(tmp_path))
    try:
        wait_until(lambda: all((tmp_path / name / "struck-0").exists() for name in names), PATIENCE, main)
        assert len(marked(mark)) >= 1 + 2 * len(names)
        shared = {path for pid in marked(mark) for path in in_shared_memory(pid)}
        assert shared  # the semaphores of the pools
        time.sleep(0.2)
        if number == CTRL_C:
            os.killpg(main.pid, signal.SIGINT)
        else:
            main.send_signal(number)
        until = time.monotonic() + PATIENCE
        while (left := marked(mark)) and time.monotonic() < until:
            main.poll()
            time.sleep(0.05)
        assert left == {}
        assert not [path for path in shared if path.exists()]
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        said, _ = main.communicate()
    assert said.count("KeyboardInterrupt") == (abs(number) == signal.SIGINT), said  # workers are deaf to it


def start_script(text: str, folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    path = os.pathsep.join([str(HERE), str(HERE.parent.parent)])
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run_script(text: str, folder: Path, *arguments: str, **environment: str) -> str:
    with start_script(text, folder, *arguments, **environment) as script:
        try:
            said, _ = script.communicate(timeout=PATIENCE)
        finally:
            script.kill()
    assert script.returncode == 0, said
    return said


def wait_until(happened: Any, seconds: float, script: subprocess.Popen[str]) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert script.poll() is None, script.stdout.read()  # type: ignore[union-attr]
        assert time.monotonic() < until
        time.sleep(0.05)


def marked(mark: str) -> dict[int, str]:
    """Living processes with that in their environment."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_text()
            except OSError:
                continue
    return found


def in_shared_memory(pid: int) -> set[Path]:
    """The files that a process has mapped from there."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line.split()[5]) for line in lines if " /dev/shm/" in line and "(deleted)" not in line}


# Too little of something


def test_too_few_files_is_said_before_any_worker_starts(tmp_path):
    said = run_script(
        """
        import resource, sys
        from multiprocessing import forkserver
        from redline.engines import Collecting, make_engine
        from redline.errors import RedlineError
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        for name in ("pipes", "shared", "ready", "pool"):
            try:
                make_engine(name, "external:faulty:Frail", 100, 0, {"folder": sys.argv[1]}, Collecting(workers=100))
            except RedlineError as error:
                print(error)
            assert forkserver._forkserver._forkserver_pid is None
        """,
        tmp_path,
    )
    assert said.count("100 workers need about") == 4
    assert not (tmp_path / "made-0").exists()


def test_workers_really_need_no_more_files_than_was_asked_for(tmp_path):
    for name in PROCESSES:
        engine = make(name, tmp_path, Faults(), workers=1)
        engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch())
        one = open_files()
        engine.close()
        engine = make(name, tmp_path, Faults(), workers=4)
        engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch())
        four = open_files()
        engine.close()
        assert four - one <= 3 * fork_server.FILES_PER_WORKER


@pytest.mark.parametrize("name", ENGINES)
def test_observations_that_fit_into_no_memory_are_refused_in_a_sentence(name):
    with pytest.raises(RedlineError, match="memory"):
        make_engine(name, "external:faulty:VastEnv", NUM_ENVS, SEED, {}, Collecting(workers=2)).collect(
            Scripted(2), NUM_STEPS, Stopwatch()
        )
    assert not children()


def test_a_tiny_dev_shm_is_enough(tmp_path):
    private = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*private, "true"], capture_output=True).returncode:
        pytest.skip("no private /dev/shm to be had")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from scripted import Scripted
            from redline.engines import Collecting, make_engine
            from redline.errors import RedlineError
            from redline.timing.stopwatch import Stopwatch
            for name in ("shared", "ready", "pipes", "pool"):
                try:
                    options = {"folder": sys.argv[1]}
                    engine = make_engine(name, "external:faulty:Frail", 200, 0, options, Collecting(workers=2))
                except RedlineError as error:
                    print(name, "says", error)
                else:
                    print(name, engine.collect(Scripted(3), 1, Stopwatch()).num_steps >= 200)
                    engine.close()
            """
        )
    )
    path = os.pathsep.join([str(HERE), str(HERE.parent.parent)])
    done = subprocess.run(
        [*private, sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[:3] == ["shared True", "ready True", "pipes True"], done.stderr
    assert lines[3:] == ["pool True"]


# The end of an engine


@pytest.mark.parametrize("name", PROCESSES)
def test_closing_takes_seconds_even_if_envs_will_not_close(name, tmp_path):
    engine = make(name, tmp_path, Faults(), fault="hold", place="close", times=EVER)
    engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch())
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < PATIENCE
    assert not children()


@pytest.mark.parametrize("name", ["shared", "pool"])
def test_closing_in_the_middle_of_a_hang_takes_seconds(name, tmp_path):
    engine = make(name, tmp_path, Faults(), fault="hold", seeds=(SEED + 1,), step=2)
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.7)
    with pytest.raises(Interrupted):
        engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch())
    started = time.monotonic()
    engine.close()
    engine.close()
    assert time.monotonic() - started < PATIENCE
    assert not children()


class Interrupted(Exception):
    pass


def interrupt(number: int, frame: Any) -> None:
    raise Interrupted


def test_twenty_engines_leave_no_file_and_no_process_behind(tmp_path):
    counts = []
    for _ in range(5):
        for name in PROCESSES:
            engine = make(name, tmp_path, Faults())
            engine.collect(Scripted(NUM_ACTIONS), 2, Stopwatch())
            engine.close()
        counts.append(open_files())
        assert not children()
    assert len(set(counts[1:])) == 1


@pytest.mark.parametrize("name", PROCESSES)
def test_replaced_workers_leave_no_file_and_no_process_behind(name, tmp_path):
    engine = make(name, tmp_path, Faults(max_restarts=EVER), fault="exit", seeds=seeds_of(1, 50), step=9, times=8)
    engine.faults._sleep = lambda seconds: None
    counts = []
    for _ in range(12):
        engine.collect(Scripted(NUM_ACTIONS), NUM_STEPS, Stopwatch())
        counts.append((open_files(), len(children())))
    assert engine.faults.restarts == 8
    assert len(set(counts)) == 1
    engine.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> list[int]:
    """Workers of this process, dead or alive: children of our fork server."""
    server = forkserver._forkserver._forkserver_pid
    found = []
    for entry in Path("/proc").iterdir():
        if server is not None and entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            found += [int(entry.name)] * (parent == server)
    return found
