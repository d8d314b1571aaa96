"""Imports go down only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import redline

PACKAGE = Path(redline.__file__).parent
LAYERS = [  # from the top; a module imports from its own package and from layers below
    {"__main__"},
    {"cli"},
    {"bench"},
    {"report"},
    {"profiler"},
    {"search"},
    {"evaluate"},
    {"learn"},
    {"runs", "metrics", "baselines", "solve"},
    {"engines"},
    {"envs"},
    {"rollout", "timing", "sims"},
    {"files", "threads", "processes", "on_ray"},
    {"errors", "version"},
]
REEXPORTED = {"RedlineError": "errors", "__version__": "version", "make_env": "envs", "vector": "engines"}
DEPTH = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")  # which only re-exports

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


def imports(path: Path) -> set[str]:
    """Modules a file imports, at its top or inside a function, by their full names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports from {'.' * node.level}{node.module or ''}; write the full name."
            module = node.module or ""
            names |= {f"redline.{alias.name}" for alias in node.names} if module == "redline" else {module}
    return names


def part_of(path: Path) -> str:
    """The package or module directly under `redline` that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def parts_imported(path: Path) -> set[str]:
    parts = {name.split(".")[1] for name in imports(path) if name.startswith("redline.")}
    return {REEXPORTED.get(part, part) for part in parts}


def outsiders_imported(path: Path) -> set[str]:
    """Packages from elsewhere, the standard library aside."""
    return {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"redline"}


def files_of(part: str) -> list[Path]:
    return [path for path in FILES if part_of(path) == part]


@every_file
def test_a_file_imports_only_its_own_package_and_lower_layers(path):
    part = part_of(path)
    assert part in DEPTH, f"redline.{part} has no layer yet: give it one in LAYERS."
    upwards = {other for other in parts_imported(path) - {part} if DEPTH[other] <= DEPTH[part]}
    assert not upwards


def test_simulators_know_numpy_numba_and_nothing_else():
    for path in files_of("sims"):
        assert outsiders_imported(path) <= {"numpy", "numba"}, path
        assert parts_imported(path) <= {"sims", "errors"}, path


@pytest.mark.parametrize("part", ["envs", "engines"])
def test_envs_and_engines_know_no_torch(part):
    for path in files_of(part):
        known_to_load_torch = {"stable_baselines3"} if path.name == "sb3.py" else set()
        assert not outsiders_imported(path) & ({"torch", "stable_baselines3"} - known_to_load_torch), path


@pytest.mark.parametrize("part", ["runs", "metrics"])
def test_run_folders_know_nothing_of_training(part):
    assert parts_imported(PACKAGE / f"{part}.py") <= {"errors", "files"}


def loaded_by(statement: str) -> set[str]:
    """Which of the heavy packages a fresh process has loaded after a statement."""
    heavy = ("torch", "numba", "gymnasium", "stable_baselines3")
    script = f"{statement}; import sys; print(*(name for name in {heavy} if name in sys.modules))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["redline", "redline.cli"])
def test_help_is_quick_because_nothing_heavy_is_loaded_for_it(module):
    assert loaded_by(f"import {module}") == set()


def test_simulators_run_where_gymnasium_and_torch_are_missing():
    assert loaded_by("import redline.sims.cage2.replay") == {"numba"}


def test_experience_is_collected_without_torch():
    assert loaded_by("import redline.engines") == {"numba", "gymnasium"}
