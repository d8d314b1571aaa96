"""Job shops as nets: one place per job and finished operation, one per machine, one transition per operation.

An operation takes its job's token and its machine's, lasts, and returns both. Flexible shops have several transitions
per operation; where jobs block machines, a job stays in a place that stands for the machine until the next is free.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from redline.errors import RedlineError, unknown
from redline.files import plain_file
from redline.worlds.petri.bounds import shop_bound
from redline.worlds.petri.numbers import is_number, whole_number
from redline.worlds.petri.rules.net import NEXT, Net, NetRules, Operation, Place, Transition, check_known

SPACES = ("jobs", "operations")
SHOP_LAYOUTS = ("jobs", "places", "graph")
BUFFERS = ("free", "blocking", "no_wait")
HORIZON = 5
"""Default time limit, in lower bounds."""
FLEXIBLE = ".fjs"
"""The ending of files with a choice of machines."""


@dataclass(frozen=True)
class Shop:
    """Jobs of operations; an operation is a list of (machine, duration) to choose from, mostly just one."""

    name: str
    jobs: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]
    releases: tuple[int, ...] = ()
    """When each job arrives; all at 0 if empty."""
    optimum: int | None = None
    best: int | None = None
    """The shortest makespan that is known, proven or not."""

    def __post_init__(self) -> None:
        """Refuse what is no job shop."""
        if not self.jobs or not all(self.jobs):
            raise RedlineError(f"The job shop {self.name!r} needs jobs with at least one operation each.")
        for j, job in enumerate(self.jobs):
            for k, choices in enumerate(job):
                if not choices or any(machine < 0 or duration < 0 for machine, duration in choices):
                    raise RedlineError(
                        f"{self.name!r}, job {j}: operation {k} makes no sense. It is given as {_shown(choices)}; machines "
                        "and durations are 0 or more. Try 0 5: machine 0 for 5."
                    )
        if self.releases and (len(self.releases) != len(self.jobs) or min(self.releases) < 0):
            raise RedlineError(f"{len(self.jobs)} jobs need {len(self.jobs)} release dates of 0 or more.")

    @property
    def machines(self) -> int:
        """How many machines there are."""
        return 1 + max(machine for job in self.jobs for operation in job for machine, _ in operation)

    @property
    def flexible(self) -> bool:
        """Whether any operation has a choice of machines."""
        return any(len(operation) > 1 for job in self.jobs for operation in job)

    def quickest(self) -> list[list[tuple[int, int]]]:
        """Each operation on its fastest machine."""
        return [[min(operation, key=lambda choice: choice[1]) for operation in job] for job in self.jobs]


@dataclass(frozen=True)
class JobShop:
    """The options of a job shop."""

    instance: str = "ft06"
    """Which one: ft06, ft10, ft20, la01 to la40, abz5 to abz9, orb01 to orb10, swv01 to swv20, ta01 to ta80, or a file:
    in standard or Taillard form, or .fjs with a choice of machines."""
    actions: str = "jobs"
    """jobs (one action per job: its next operation) or operations (one per transition)."""
    buffers: str = "free"
    """Between machines: free, blocking (a job keeps its machine until the next is free) or no_wait."""
    non_delay: bool = False
    """No waiting while an operation can begin."""
    skip_forced_waits: bool = True
    """Go on by itself while nothing can be done."""
    reward: str = "makespan"
    """makespan (a completed episode returns 1 - makespan / lower bound) or ct_dense."""
    horizon: int = 0
    """Time limit; 0 is five times the lower bound."""
    layout: str = "jobs"
    """Observation: jobs (a block per job and machine), places or graph (numbers for every place of any net)."""
    observe_clock: bool = False
    """Add the clock to the observation."""

    def __post_init__(self) -> None:
        """Refuse what cannot be built, saying what could."""
        check_known("action space", self.actions, SPACES)
        check_known("kind of buffers", self.buffers, BUFFERS)
        check_known("observation layout", self.layout, SHOP_LAYOUTS)


@cache
def _data(file: str = "job_shops.json") -> dict[str, Any]:
    return json.loads(files("redline.worlds.petri").joinpath("data", file).read_text())


def _classic() -> dict[str, Any]:
    return _data("classic_shops.json")


def shop_names() -> list[str]:
    """The job shops that we try everything on, by name."""
    return list(_data())


def all_shop_names() -> list[str]:
    """All job shops by name: ours, and the other classic ones."""
    return [*_data(), *_classic()]


def find_shop(name: str) -> Shop:
    """A job shop by name, or from a file."""
    if name in _data():
        data = _data()[name]
        return Shop(name, _only_choices(data["jobs"]), optimum=data["optimum"], best=data["optimum"])
    if name in _classic():
        data = _classic()[name]
        numbers = [list(map(int, job.split())) for job in data["jobs"]]
        jobs = [list(zip(job[::2], job[1::2], strict=True)) for job in numbers]
        return Shop(name, _only_choices(jobs), optimum=data["optimum"], best=data["best"])
    path = Path(name)
    if path.suffix or path.exists():
        return load_shop(path)
    raise unknown("job shop", name, all_shop_names())


def _only_choices(jobs: Sequence[Sequence[Sequence[int]]]) -> tuple:
    return tuple(tuple(((int(machine), int(duration)),) for machine, duration in job) for job in jobs)


def load_shop(path: Path) -> Shop:
    """A job shop from a text file, in standard or Taillard form, or with a choice of machines (.fjs)."""
    try:
        text = plain_file(path).read_text()
        return parse_flexible(path.stem, text) if path.suffix == FLEXIBLE else parse_shop(path.stem, text)
    except FileNotFoundError:
        raise RedlineError(f"There is no job shop at {path}. Known by name: {', '.join(shop_names())} …") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RedlineError(f"{path} cannot be read: {error}") from error


def parse_shop(name: str, text: str) -> Shop:
    """A job shop from text: "jobs machines", then a line of machine-duration pairs per job, machines from 0.

    Or Taillard's form: a matrix of durations, then one of machines, numbered from 1. Lines with # are skipped, words too.
    """
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    numbers = [[whole_number(word) for word in line] for line in lines]
    rows = [[number for number in line if number is not None] for line in numbers if None not in line]
    if not rows or len(rows[0]) < 2 or min(rows[0][:2]) < 1:
        raise RedlineError(
            f"{name!r} is no job shop: its first line must give the numbers of jobs and machines, as in 2 3."
        )
    if fraction := _fraction(lines):
        raise RedlineError(f"{name!r} holds {fraction}, but takes whole numbers. Try {round(float(fraction))}.")
    (num_jobs, num_machines), body = rows[0][:2], rows[1:]
    if len(body) == num_jobs and all(len(row) % 2 == 0 for row in body):
        jobs = [list(zip(row[::2], row[1::2], strict=True)) for row in body]
    elif len(body) == 2 * num_jobs and all(len(row) == num_machines for row in body):
        times, machines = body[:num_jobs], body[num_jobs:]
        jobs = [[(m - 1, t) for m, t in zip(*each, strict=True)] for each in zip(machines, times, strict=True)]
    else:
        raise RedlineError(
            f"{name!r} announces {num_jobs} jobs on {num_machines} machines but has {len(body)} lines of numbers: give "
            "one line of machine-duration pairs per job, or a matrix of durations and one of machines."
        )
    counted_from = int(len(body) != num_jobs)
    for j, job in enumerate(jobs):
        for machine, _ in job:
            if not 0 <= machine < num_machines:
                raise RedlineError(
                    f"{name!r}, job {j} uses a machine that is not one of its {num_machines}: {machine + counted_from}. "
                    f"They are counted from {counted_from} here; try {num_machines - 1 + counted_from}."
                )
    return Shop(name, _only_choices(jobs))


def _fraction(lines: Sequence[Sequence[str]]) -> str:
    """The first fraction in a line of numbers alone; nothing where there is none."""
    for line in lines:
        fractions = [word for word in line if "." in word]
        if fractions and all(map(is_number, line)):
            return fractions[0]
    return ""


def _shown(choices: Sequence[tuple[int, int]]) -> str:
    return " or ".join(f"{machine} {duration}" for machine, duration in choices) or "nothing"


def parse_flexible(name: str, text: str) -> Shop:
    """A job shop with a choice of machines: "jobs machines", then a line per job with its number of operations, and for
    each of them the number of machines to choose from and machine-duration pairs, machines from 1.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    rows = [[whole_number(word.removesuffix(".0")) for word in line.split()] for line in lines]
    if not rows or len(rows[0]) < 2 or not rows[0][0] or not rows[0][1]:
        raise RedlineError(
            f"{name!r} is no job shop: its first line must give the numbers of jobs and machines, as in 2 3."
        )
    num_jobs, num_machines = int(rows[0][0]), int(rows[0][1])
    if len(rows) - 1 != num_jobs:
        raise RedlineError(f"{name!r} announces {num_jobs} jobs but has {len(rows) - 1} lines for them.")
    jobs = tuple(_flexible_job(name, k, row, num_machines) for k, row in enumerate(rows[1:], start=1))
    return Shop(name, jobs)


def _flexible_job(
    name: str, line: int, row: Sequence[int | None], num_machines: int
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The operations of a job, from the numbers of its line."""
    numbers = iter(row)

    def take(what: str, least: int, most: int) -> int:
        number = next(numbers, None)
        if number is None or not least <= number <= most:
            raise RedlineError(
                f"{name!r}, job {line}: {what} is {'missing' if number is None else number}; it must be {least} to {most}. "
                "Try 1 2 1 5 2 7: one operation, two machines to choose from, 5 on machine 1 or 7 on machine 2."
            )
        return number

    most = 10**9
    operations = []
    for k in range(1, 1 + take("the number of operations", 1, 10_000)):
        choices = take(f"the number of machines for operation {k}", 1, num_machines)
        pairs = [
            (take(f"a machine of operation {k}", 1, num_machines) - 1, take(f"a duration of operation {k}", 0, most))
            for _ in range(choices)
        ]
        operations.append(tuple(pairs))
    if next(numbers, None) is not None:
        raise RedlineError(f"{name!r}, job {line}: there are numbers behind its {len(operations)} operations.")
    return tuple(operations)


# The net


def build_shop(options: JobShop, shop: Shop | None = None) -> Net:
    """The net of a job shop."""
    shop = shop or find_shop(options.instance)
    bound = shop_bound(shop.quickest(), shop.releases) if not shop.flexible else _flexible_bound(shop)
    places, transitions = _blocking_nodes(shop, options) if options.buffers != "free" else _plain_nodes(shop, options)
    return Net(
        name=f"jobshop/{shop.name}",
        places=(*places, *(Place(f"I{m}", 1, 1, kind="machine") for m in range(shop.machines))),
        transitions=tuple(transitions),
        goal={f"W{j},{len(job)}": 1 for j, job in enumerate(shop.jobs)},
        horizon=options.horizon or HORIZON * max(bound, total_work(shop)),
        operations=_operations(shop),
        rules=NetRules(
            (NEXT,), skip_forced_waits=options.skip_forced_waits, non_delay=options.non_delay, reward=options.reward,
            lower_bound=bound, layout=options.layout, observe_clock=options.observe_clock,
        ),
    )  # fmt: skip


def total_work(shop: Shop) -> int:
    """Time it takes to do one operation after the other."""
    return max((0, *shop.releases)) + sum(duration for job in shop.quickest() for _, duration in job)


def _flexible_bound(shop: Shop) -> int:
    """The longest job, each operation on its fastest machine, and all work spread evenly."""
    jobs = shop.quickest()
    longest = max(
        start + sum(time for _, time in job) for start, job in zip(shop.releases or (0,) * len(jobs), jobs, strict=True)
    )
    return max(1, longest, -(-sum(time for job in jobs for _, time in job) // shop.machines))


def _release(shop: Shop, j: int) -> int:
    return shop.releases[j] if shop.releases else 0


def _action(options: JobShop, j: int) -> str | None:
    return f"job {j}" if options.actions == "jobs" else None


def _plain_nodes(shop: Shop, options: JobShop) -> tuple[list[Place], list[Transition]]:
    """Jobs wait in W(j,k) with k operations done; O(j,k) takes the token and its machine's."""
    places, transitions = [], []
    for j, job in enumerate(shop.jobs):
        for k in range(len(job) + 1):
            release = _release(shop, j) if k == 0 else 0
            places.append(Place(f"W{j},{k}", int(k == 0), 1, release, job=j, operation=k))
        for k, operation in enumerate(job):
            for machine, duration in operation:
                only = len(operation) == 1
                name = f"O{j},{k}" if only else f"O{j},{k},{machine}"
                idle = (f"I{machine}", 1)
                arcs = ((f"W{j},{k}", 1), idle), ((f"W{j},{k + 1}", 1), idle)
                transitions.append(Transition(name, *arcs, duration, action=_action(options, j) if only else None))
    return places, transitions


def _blocking_nodes(shop: Shop, options: JobShop) -> tuple[list[Place], list[Transition]]:
    """A job stays on machine m in P(j,k,m) for its operation, and beyond it until the next one begins."""
    places, transitions = [], []
    limit = 0 if options.buffers == "no_wait" else None
    for j, job in enumerate(shop.jobs):
        places.append(Place(f"W{j},0", 1, 1, _release(shop, j), job=j, operation=0))
        places.append(Place(f"W{j},{len(job)}", capacity=1, job=j, operation=len(job)))
        for k, operation in enumerate(job):
            last = k + 1 == len(job)
            for machine, duration in operation:
                name = f"P{j},{k},{machine}"
                places.append(Place(name, 0, 1, duration, None if last else limit, job=j, operation=k + 1))
                transitions += _begin(shop, options, j, k, machine, duration)
                if last:
                    done = ((f"W{j},{k + 1}", 1), (f"I{machine}", 1))
                    transitions.append(Transition(f"E{j},{machine}", ((name, 1),), done, controllable=False))
    return places, transitions


def _begin(shop: Shop, options: JobShop, j: int, k: int, machine: int, duration: int) -> list[Transition]:
    """The transitions that move job `j` onto `machine` for operation `k` and free the machine it was on."""
    came_from = [None] if k == 0 else [other for other, _ in shop.jobs[j][k - 1]]
    begins = []
    for other in came_from:
        held = (f"W{j},0", 1) if other is None else (f"P{j},{k - 1},{other}", 1)
        freed = () if other is None else ((f"I{other}", 1),)
        alone = len(shop.jobs[j][k]) == 1 and len(came_from) == 1
        name = f"O{j},{k}" if alone else f"O{j},{k},{machine}" + ("" if other is None else f",{other}")
        needed = () if other == machine else ((f"I{machine}", 1),)  # it may stay where it is
        inputs, outputs = (held, *needed), ((f"P{j},{k},{machine}", 1), *(freed if needed else ()))
        begins.append(Transition(name, inputs, outputs, work=duration, action=_action(options, j) if alone else None))
    return begins


def _operations(shop: Shop) -> tuple[tuple[Operation, ...], ...]:
    rows = []
    for job in shop.quickest():
        left = [sum(time for _, time in job[k:]) for k in range(len(job))]
        rows.append(tuple(Operation(f"I{m}", time, left[k]) for k, (m, time) in enumerate(job)))
    return tuple(rows)
