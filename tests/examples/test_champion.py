"""The champion outside of Redline's simulator: the example plays inside CybORG, where that is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "champion_in_cyborg.py"


def test_the_example_is_short_and_needs_numpy_alone():
    lines = EXAMPLE.read_text().splitlines()
    assert len(lines) <= 60
    imported = {line.split()[1].partition(".")[0] for line in lines if line.startswith(("import ", "from "))}
    assert imported - set(sys.stdlib_module_names) == {"numpy", "CybORG", "safetensors", "redline"}


@pytest.mark.skipif(importlib.util.find_spec("CybORG") is None, reason="CybORG is not installed")
@pytest.mark.parametrize("rules", ["leaderboard", "final"])
def test_the_champion_plays_the_official_evaluation_inside_cyborg(rules):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(EXAMPLE), rules, "2", "7"],
        env={"PYTHONPATH": f"{ROOT}:{':'.join(sys.path)}"}, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [(row[0], int(row[1])) for row in rows] == [
        (agent, length) for length in (30, 50, 100) for agent in ("B_lineAgent", "RedMeanderAgent", "SleepAgent")
    ]
    assert all(float(row[2]) == 0.0 for row in rows if row[0] == "SleepAgent")
    assert all(float(row[2]) > -60 for row in rows)
