"""Everything that reads what somebody else may have written, by name."""

from __future__ import annotations

from tests.fuzz import recording_readers, run_readers, world_readers
from tests.fuzz.reader import Reader

_MAKERS = {
    make.__name__.replace("_", " "): make
    for module in (world_readers, recording_readers, run_readers)
    for make in module.READERS
}
NAMES = tuple(_MAKERS)


def reader(name: str) -> Reader:
    """The reader of that name."""
    return _MAKERS[name]()
