"""A played episode as a schedule: which transition fired when, and for whom. Written as JSON or CSV, and read again."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.worlds.petri.rules.net import Net, Transition
from redline.worlds.petri.rules.tables import NONE

FORMATS = (".json", ".csv")


class Firing(NamedTuple):
    """One firing of a schedule."""

    start: int
    end: int
    transition: Transition
    token: int | None
    """The wafer or other token it moves; None where tokens are only counted."""


@dataclass(frozen=True)
class Schedule:
    """The firings of one episode, in the order in which they began."""

    name: str
    """The net by name and options, e.g. `petri:cluster/J-0?wafers=12`; what `parse_petri` makes it from again."""
    net: Net
    makespan: int
    outcome: str
    log: np.ndarray
    """int32 [n, 4]  start, end, transition, token of each firing, as the kernel keeps it."""

    def __iter__(self) -> Iterator[Firing]:
        """The firings one by one."""
        for start, end, t, token in self.log.tolist():
            yield Firing(start, end, self.net.transitions[t], token if self.net.routes and token != NONE else None)

    def to_json(self) -> dict[str, Any]:
        """The schedule as plain data; `redline verify petri --schedule` reads it."""
        return {
            "net": self.name,
            "makespan": self.makespan,
            "outcome": self.outcome,
            "firings": [_row(firing) for firing in self],
        }

    def to_csv(self) -> str:
        """The firings as a table."""
        text = io.StringIO()
        rows = csv.DictWriter(text, fieldnames=COLUMNS, lineterminator="\n")
        rows.writeheader()
        rows.writerows(_row(firing) for firing in self)
        return text.getvalue()

    def encode(self, ending: str) -> bytes:
        """The schedule as a file with that ending has it."""
        return (self.to_csv() if ending == ".csv" else json.dumps(self.to_json(), indent=1) + "\n").encode()


COLUMNS = ("start", "end", "transition", "token", "from", "to", "resource")


def _row(firing: Firing) -> dict[str, Any]:
    transition = firing.transition
    return {
        "start": firing.start,
        "end": firing.end,
        "transition": transition.name,
        "token": firing.token,
        "from": " ".join(name for name, _ in transition.inputs),
        "to": " ".join(name for name, _ in transition.outputs),
        "resource": transition.resource,
    }


def require_format(path: Path) -> None:
    """Refuse a file whose ending names no form of schedule."""
    if path.suffix not in FORMATS:
        raise RedlineError(
            f"A schedule is written as {' or '.join(FORMATS)}, not as {path.name!r}. Try {path.stem}{FORMATS[0]}."
        )
