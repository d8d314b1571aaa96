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
    {"__main__", "testing"},
    {"cli"},
    {"bench"},
    {"report"},
    {"profiler"},
    {"search"},
    {"learn"},
    {"runs", "metrics"},
    {"engines"},
    {"sb3", "envs"},
    {"worlds"},
    {"rollout", "timing", "compiled", "signature", "on_ray"},
    {"files", "threads", "processes", "signals"},
    {"errors", "version", "memory"},
]
REEXPORTED = {
    "RedlineError": "errors",
    "__version__": "version",
    **{name: home.split(".")[1] for name, home in redline._HOMES.items()},
}
DEPTH = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")  # which only re-exports

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


class _Running(ast.NodeTransformer):
    """Takes out what only type checkers see."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node


def imports(path: Path) -> set[str]:
    """Modules a file imports, at its top or inside a function, by their full names. Those for types only do not count."""
    names = set()
    for node in ast.walk(_Running().visit(ast.parse(path.read_text()))):
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


def is_optional_part(path: Path) -> bool:
    """Whether a file of a world is loaded only when a command asks for it: its recipe, its pages, its scores …"""
    where = path.relative_to(PACKAGE).parts
    return where[0] == "worlds" and len(where) > 2 and where[2] not in ("__init__.py", "env.py", "rules")


@every_file
def test_a_file_imports_only_its_own_package_and_lower_layers(path):
    part = part_of(path)
    assert part in DEPTH, f"redline.{part} has no layer yet: give it one in LAYERS."
    depth = DEPTH["bench"] if is_optional_part(path) else DEPTH[part]
    upwards = {other for other in parts_imported(path) - {part} if DEPTH[other] <= depth}
    assert not upwards


WORLDS = sorted(path.name for path in (PACKAGE / "worlds").iterdir() if (path / "__init__.py").exists())


@pytest.mark.parametrize("world", [*(name for name in WORLDS if name != "python"), "cyborg"])
def test_a_world_is_known_by_name_in_its_own_folder_only(world):
    home = PACKAGE / "worlds" / ("cage2" if world == "cyborg" else world)
    for path in (path for path in FILES if home not in path.parents):
        lines = path.read_text().lower().splitlines()
        assert [f"{path}:{number}: {line}" for number, line in enumerate(lines, 1) if world in line] == []


def test_making_an_env_loads_nothing_that_trains_or_draws():
    script = (
        "import sys, redline; from redline.worlds.registry import all_worlds; "
        "[redline.make_env(next(iter(world.examples), world.name), 1) for world in all_worlds() if world.compiled]; "
        "print(*(name for name in sys.modules if name.startswith('redline.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    parts = {name.split(".")[1] for name in done.stdout.split()}
    assert parts <= {"compiled", "errors", "files", "memory", "threads", "version", "worlds"}


def private_names_imported(path: Path) -> set[str]:
    """Names with a leading underscore that a file takes from other modules of ours, imported or by a dot."""
    found, modules = set(), set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "redline":
            modules |= {alias.asname or alias.name for alias in node.names if alias.name.islower()}
            found |= {f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found |= {f"{node.value.id}.{node.attr}"} if is_private(node.attr) else set()
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


@every_file
def test_a_private_name_stays_in_its_module(path):
    assert not private_names_imported(path)


def test_pictures_need_no_second_drawing_package():
    assert not [path for path in FILES if "matplotlib" in outsiders_imported(path)]


def test_compiled_knows_numpy_numba_and_nothing_of_ours():
    for path in files_of("compiled"):
        assert outsiders_imported(path) <= {"numpy", "numba", "llvmlite"}, path  # which is part of Numba
        assert parts_imported(path) <= {"compiled", "errors"}, path


@pytest.mark.parametrize("part", ["engines"])
def test_envs_and_engines_know_no_torch(part):
    for path in files_of(part):
        known_to_load_torch = {"stable_baselines3"} if path.name == "sb3.py" else set()
        assert not outsiders_imported(path) & ({"torch", "stable_baselines3"} - known_to_load_torch), path


@pytest.mark.parametrize("part", ["runs", "metrics"])
def test_run_folders_know_nothing_of_training(part):
    assert parts_imported(PACKAGE / f"{part}.py") <= {"errors", "files", "signature"}


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
    assert loaded_by("import redline.worlds.cage2.recordings") == {"numba"}


def test_experience_is_collected_without_torch():
    assert loaded_by("import redline.engines") == {"numba", "gymnasium"}


def test_a_class_has_a_name_of_its_own():
    found: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
