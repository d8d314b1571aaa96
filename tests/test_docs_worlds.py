"""What docs/worlds.md says is so: its commands run, its code is that of the examples, and no field is left out."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import redline
from redline.worlds.rules import Rules
from redline.worlds.world import World

ROOT = Path(redline.__file__).parents[1]
PAGE = (ROOT / "docs" / "worlds.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
CODE = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [text for language, text in BLOCKS if not language]
EXAMPLES = [ROOT / "examples" / name for name in ("elevator.py", "elevator_original.py")]


def file_of(block: str) -> str | None:
    """The file that a block of code says it is, by a comment in its first line."""
    found = re.match(r"# (\S+\.py)\n", block)
    return found and found[1]


@pytest.mark.parametrize("block", CODE)
def test_the_code_of_the_page_is_that_of_the_examples(block):
    assert file_of(block) or any(block in path.read_text() for path in EXAMPLES)


def test_every_command_of_the_page_works(tmp_path):
    for path in EXAMPLES:
        shutil.copy(path, tmp_path)
    for block in CODE:
        if name := file_of(block):
            (tmp_path / name).write_text(block)
    python = f'"{sys.executable}"'
    lines = ["set -e", f'redline() {{ {python} -m redline "$@"; }}', f'python() {{ {python} "$@"; }}', *COMMANDS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("no mismatches") == 2
    assert (tmp_path / "runs" / "elevator" / "report.html").exists()


@pytest.mark.parametrize("kind", [World, Rules])
def test_every_field_is_explained(kind):
    rows = [line.partition("|")[2].partition("|")[0] for line in PAGE.splitlines() if line.startswith("| `")]
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {field.name for field in dataclasses.fields(kind)} <= explained
