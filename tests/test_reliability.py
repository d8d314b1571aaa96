"""What docs/reliability.md says is shown by tests: they are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FAULTS = (ROOT / "docs" / "reliability.md").read_text().partition("\n## ")[0]
ROWS = [line for line in FAULTS.splitlines() if line.startswith("| ") and "---" not in line][1:]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def named_in(path: str) -> set[str]:
    """Names of the test functions of a file, those of classes included."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_every_fault_names_tests_that_are_there(row: str) -> None:
    named = NAMED.findall(row)
    assert named
    for path, test in named:
        assert test in named_in(path)
