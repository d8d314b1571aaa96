"""Where Redline uses what another package keeps to itself: each place has a test here that fails when it changes.

What the compiler needs of Numba is tested in tests/compiled, what engines and search need beside the engines and search.
"""

from __future__ import annotations

import argparse
import ast
import inspect
from pathlib import Path

import pytest

import redline

PACKAGE = Path(redline.__file__).parent
TESTED_ELSEWHERE = ("engines", "search", "processes.py")
DOCUMENTED = {"_replace", "_fields", "_asdict", "_exit", "_field_defaults"}  # though they begin with an underscore
TESTED_HERE = {
    "cli/options.py": {"_action_groups", "_actions"},
    "sb3.py": {"_get_indices"},
}
TESTED_WITH_THE_COMPILER = {
    "compiled/disk.py": {"_cache", "_cache_file", "_config_fname", "_impl", "_load_index", "_py_func", "_source_stamp"},
    "compiled/rows.py": {"_getvalue"},
    "compiled/speed.py": {"_compile_for_args", "_compiling_counter", "_insert"},
    "compiled/unfinished.py": {
        "_codegen",
        "_compiler",
        "_compiling_counter",
        "_data_layout",
        "_final_module",
        "_finalized",
        "_function_pass_manager",
        "_get_module_for_linking",
        "_linking_libraries",
        "_module_pass_manager",
        "_opt_level",
    },
}


def foreign_private_names(path: Path) -> set[str]:
    """Attributes with an underscore that a file uses and does not define."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and is_set_on_self(node)}
    defined |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # slots
    return {name for name in used - defined if name.startswith("_") and not name.startswith("__")} - DOCUMENTED


def is_set_on_self(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def test_every_private_name_of_another_package_is_listed_here():
    listed = TESTED_HERE | TESTED_WITH_THE_COMPILER
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in TESTED_ELSEWHERE:
            unlisted = foreign_private_names(path) - listed.get(place.as_posix(), set())
            assert not unlisted, f"{place} uses {unlisted} of another package: test it here, and list it."


def test_argparse_lists_what_it_reads_and_its_groups():
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("a group")
    word = parser.add_argument("word")
    option = group.add_argument("--option")
    assert parser._actions == [word, option]
    assert parser._action_groups[2:] == [group]


def test_stable_baselines_numbers_envs_by_a_method_of_this_name():
    base = pytest.importorskip("stable_baselines3.common.vec_env").VecEnv
    assert [*inspect.signature(base._get_indices).parameters] == ["self", "indices"]
