"""A way in for what somebody else may have written, and what the readers share."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.errors import RedlineError
from tests.fuzz.mutate import mutated_bytes, mutated_json

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
SEEDS = HERE / "seeds"
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
Draw = Callable[[random.Random], Any]


@dataclass(frozen=True)
class Reader:
    """A way in: `read` takes one input, and either comes to an end or raises a `RedlineError` of one line."""

    draw: Draw
    read: Callable[[Any], object]

    def try_one(self, seed: int) -> bool:
        """Read one input. Returns whether it was taken."""
        given = self.draw(random.Random(seed))
        try:
            self.read(given)
        except RedlineError as error:
            assert "\n" not in str(error), f"more than one line: {error}"
            return False
        return True


def bytes_of(contents: list[bytes]) -> Draw:
    """Contents of files with some bytes changed."""
    return lambda rng: mutated_bytes(rng, rng.choice(contents), contents)


def json_of(values: list[Any]) -> Draw:
    """Values with something in them changed."""
    return lambda rng: mutated_json(rng, rng.choice(values))


def encoded(value: Any) -> bytes:
    """A value as a JSON file."""
    return json.dumps(value).encode(errors="surrogatepass")


@contextmanager
def a_file(data: bytes, suffix: str) -> Iterator[Path]:
    """A file that holds this."""
    with tempfile.NamedTemporaryFile(suffix=suffix, dir=IN_MEMORY) as file:
        file.write(data)
        file.flush()
        yield Path(file.name)


def a_folder() -> Path:
    """A folder that goes with this process."""
    folder, owner = Path(tempfile.mkdtemp(prefix="redline-fuzz-", dir=IN_MEMORY)), os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    return folder
