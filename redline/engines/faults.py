"""Envs and processes that fail: told in one line, then mended, dropped or the end of the run, as the user chose.

A lost episode is never spliced: its steps leave the rollout, it is counted, and its env begins a new one with a new seed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from redline.errors import RedlineError, unknown, written_out
from redline.files import warn_on_stderr

ON_ENV_ERROR = {
    "restart": "begin a new episode in a new env",
    "drop": "go on without that env",
    "fail": "stop",
}
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds that are waited before an env is restarted that fails again and again. All others wait, too."""
START_SECONDS = 300.0
"""Time for a new worker to import the env, and for an env to be made."""
THINK_SECONDS = 60.0
"""Time for a worker that plays whole episodes to choose actions, or to hand in what it has played."""


@dataclass(frozen=True)
class Faults:
    """The user's choice of what to do when an env fails."""

    on_env_error: str = "restart"
    """An env that raises, crashes, hangs or returns nonsense: restart it, drop it, or fail (stop with a checkpoint)."""
    max_restarts: int = 5
    """Restarts of an env before it has finished an episode again; one more stops the run, with a checkpoint."""
    step_deadline: float = 0.0
    """Seconds after which a step or reset in a worker counts as hung. 0: twenty times the slowest seen, at least 30."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.on_env_error not in ON_ENV_ERROR:
            raise unknown("answer to env errors", self.on_env_error, ON_ENV_ERROR)
        if self.max_restarts < 0:
            raise RedlineError(f"--max-restarts {self.max_restarts} cannot work: it must be at least 0. Try 5.")
        if not 0 <= self.step_deadline < float("inf"):
            raise RedlineError(
                f"--step-deadline {self.step_deadline:g} cannot work: it must be 0 or more seconds. Try 0."
            )


class EnvTrouble(RedlineError):
    """Envs failed and the user's choice, or the end of the restart budget, was to stop. Not bad input: exit code 1."""

    exit_code = 1

    def __str__(self) -> str:
        """What happened, with the lines of a traceback as they are."""
        return written_out(Exception.__str__(self), kept="\n")


@dataclass(frozen=True)
class Failure:
    """One env that failed: plain data, so that it can cross between processes."""

    env: int
    during: str  # "step", "reset", "making it" or "its info"
    what: str
    seed: int | None
    step: int  # steps its episode had finished
    action: Any = None
    traceback: str = ""

    @property
    def place(self) -> str:
        """Where an exception was raised, and of which kind; empty where none was."""
        lines = [line.strip() for line in self.traceback.splitlines() if line.strip().startswith("File ")]
        return f"{self.during} {lines[-1]} {self.what.partition(':')[0]}" if lines else ""

    @property
    def lost(self) -> int:
        """Episodes that go with it: an env that fails between two has told of the last one already."""
        return int(self.during not in ("reset", "making it"))

    def __str__(self) -> str:
        where = f"in {self.during}" if self.during != "making it" else "while being made"
        after = f", step {self.step + 1} of its episode, action {self.action}" if self.during == "step" else ""
        return f"env {self.env} failed {where} (seed {self.seed}{after}): {self.what}"


class EnvFailed(Exception):
    """Carries a `Failure` from where it is noticed to whoever owns the env."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True)
class WorkerCrash:
    """A worker process that is gone, and what it was doing."""

    worker: int
    pid: int | None
    how: str  # "was killed by SIGKILL"
    env: int | None  # in which env, if it was at one
    during: str = ""
    seed: int | None = None
    step: int = 0
    action: int | None = None
    lost: int | None = None  # episodes that went with it, where that is known

    def __str__(self) -> str:
        who = f"worker {self.worker} (pid {self.pid}) {self.how}"
        if self.env is None:
            return f"{who} between two steps"
        action = "" if self.action is None else f", action {self.action}"
        at = {"step": f"in step {self.step + 1} of its episode{action}", "reset": "in reset"}
        return f"{who} while at env {self.env} (seed {self.seed}), {at.get(self.during, 'while making it')}"


class Supervisor:
    """Decides what becomes of envs that failed, says so, and keeps the account."""

    def __init__(
        self,
        faults: Faults,
        num_envs: int,
        seed: int,
        warn: Callable[[str], None] = warn_on_stderr,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.faults, self.warn, self._sleep = faults, warn, sleep
        self.seeds: list[int] = [seed + i for i in range(num_envs)]
        self.dropped = np.zeros(num_envs, np.bool_)
        self.restarts = self.lost_episodes = 0
        self._first_seed = seed
        self._in_a_row: Counter[int] = Counter()
        self._times: Counter[int] = Counter()
        self._slowest = 0.0
        self._told: set[str] = set()
        self._alike: dict[str, set[int]] = {}  # until an episode ends: who failed at the same place in the same way
        self._any_finished = False

    def finished(self, envs: Collection[int] | np.ndarray) -> None:
        """These envs finished an episode: their budget is whole again."""
        self._any_finished = self._any_finished or any(True for _ in envs)
        if self._in_a_row:
            for env in envs:
                self._in_a_row.pop(int(env), None)

    def decide(self, cause: Failure | WorkerCrash, envs: Iterable[int], lost: int) -> list[int]:
        """Say what happened and wait if need be. Returns the envs to restart; the others of `envs` are dropped.

        `lost` episodes were under way. `envs` go down together, when they share a process that died; the budget is that
        of the env that caused it.
        """
        self.lost_episodes += lost
        envs = [env for env in envs if not self.dropped[env]]
        culprit = cause.env if cause.env is not None else min(envs, default=0)
        self._in_a_row[culprit] += 1
        tries, budget = self._in_a_row[culprit], self.faults.max_restarts
        trace = f"\n{cause.traceback.rstrip()}" if isinstance(cause, Failure) and cause.traceback else ""
        brief = "" if trace in self._told else trace  # a traceback is shown once
        self._told.add(trace)
        if self.faults.on_env_error == "fail":
            raise EnvTrouble(f"{_capital(cause)}.{trace}")
        if self.faults.on_env_error == "drop":
            return self._drop(cause, culprit, envs, lost, trace)
        if tries > budget:
            raise EnvTrouble(
                f"{_capital(cause)}. That is failure {tries} of this env since it last finished an episode, "
                f"more than --max-restarts {budget} allows.{trace}"
            )
        if self._is_a_bug(cause):
            raise EnvTrouble(
                f"{_capital(cause)}. All {len(self.seeds)} envs have failed at the same place in the same way before any "
                f"episode ended, so another try would, too.{trace}"
            )
        self.restarts += 1
        self.warn(f"redline: {cause}. {_begin_anew(envs)} ({_lost(lost)}, restart {tries} of {budget}).{brief}")
        self._sleep(0.0 if tries == 1 else min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 2)))
        return self._reseeded(envs)

    def _is_a_bug(self, cause: Failure | WorkerCrash) -> bool:
        """Whether every env has raised the same at the same place, one of them twice at least, and none came to an end."""
        if self._any_finished or not isinstance(cause, Failure) or not cause.place:
            return False
        alike = self._alike.setdefault(cause.place, set())
        alike.add(cause.env)
        return len(alike) == len(self.seeds) and max(self._in_a_row.values()) > 1

    def _drop(self, cause: Failure | WorkerCrash, culprit: int, envs: list[int], lost: int, trace: str) -> list[int]:
        self.dropped[culprit] = True
        left = int((~self.dropped).sum())
        if not left:
            raise EnvTrouble(f"{_capital(cause)}. It was the last env that was left.{trace}")
        self.warn(f"redline: {cause}. Going on without env {culprit}: {left} envs left ({_lost(lost)}).{trace}")
        return self._reseeded([env for env in envs if env != culprit])

    def _reseeded(self, envs: list[int]) -> list[int]:
        for env in envs:
            self._times[env] += 1
            self.seeds[env] = self.next_seed(env)
        return envs

    def next_seed(self, env: int) -> int:
        """A seed for the env's next life that no env has had."""
        entropy = np.random.SeedSequence([self._first_seed, env, self._times[env]])
        return int(entropy.generate_state(1, np.uint32)[0] >> 1)

    def saw(self, seconds: float) -> None:
        """The slowest step of late, from which the deadline follows."""
        self._slowest = max(self._slowest, seconds)

    @property
    def deadline(self) -> float:
        """Seconds that one step or reset may take."""
        return self.faults.step_deadline or max(30.0, 20.0 * self._slowest)

    @property
    def start_deadline(self) -> float:
        """Seconds until a new worker must have begun, or an env must have been made."""
        return START_SECONDS

    @property
    def think_deadline(self) -> float:
        """Seconds that a worker may be between two steps."""
        return max(self.deadline, THINK_SECONDS)


def _capital(cause: Failure | WorkerCrash) -> str:
    text = str(cause)
    return text[0].upper() + text[1:]


def _begin_anew(envs: list[int]) -> str:
    if len(envs) == 1:
        return f"Env {envs[0]} begins a new episode"
    return f"{len(envs)} envs ({_ranges(envs)}) begin new episodes"


def _ranges(envs: list[int]) -> str:
    consecutive = envs == list(range(envs[0], envs[-1] + 1)) if envs else False
    return (
        f"{envs[0]} to {envs[-1]}" if consecutive else ", ".join(map(str, envs[:8])) + (", …" if len(envs) > 8 else "")
    )


def _lost(count: int) -> str:
    return f"{count} episode{'s' if count != 1 else ''} dropped"
