"""What an installed copy holds, and what it announces."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import redline
from redline.worlds.registry import all_worlds

PACKAGE = Path(redline.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
NO_PART = {".py", ".pyc", ".nbi", ".nbc", ".turn"}


def test_every_file_that_is_no_module_is_packed():
    data = PROJECT["tool"]["setuptools"]["package-data"]
    patterns = [f"{package.replace('.', '/')}/{pattern}" for package, each in data.items() for pattern in each]
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in NO_PART]
    names = [path.relative_to(PACKAGE.parent).as_posix() for path in files]
    assert names
    unpacked = [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    assert not unpacked, "pyproject.toml leaves these out of the package"
    for pattern in patterns:
        assert any(fnmatch.fnmatch(name, pattern) for name in names), f"{pattern} packs nothing"


def test_type_checkers_are_told_that_the_package_has_types():
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize(
    "world", [world for world in all_worlds() if world.gymnasium is not None], ids=lambda w: w.name
)
def test_gymnasium_finds_our_envs_by_itself(world):
    script = f"import gymnasium; print(gymnasium.make('redline.envs:{world.gymnasium.id}').spec.id)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == world.gymnasium.id
