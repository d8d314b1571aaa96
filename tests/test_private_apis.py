"""Where Redline uses what another package keeps to itself: each place has a test here that fails when it changes.

What the compiler needs of Numba is tested in tests/compiled, what engines and search need beside the engines and search.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as executors
from pathlib import Path
from typing import Any

import pytest

import redline

PACKAGE = Path(redline.__file__).parent
TESTED_ELSEWHERE = ("engines", "search", "processes.py")
DOCUMENTED = {"_replace", "_fields", "_asdict", "_exit", "_field_defaults"}  # though they begin with an underscore
TESTED_HERE = {
    "sb3.py": {"_get_indices"},
}
TESTED_WITH_THE_COMPILER = {
    "compiled/disk.py": {"_cache", "_cache_file", "_impl", "_load_index", "_py_func", "_source_stamp"},
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


def test_python_finds_modules_that_are_not_loaded_yet_through_one_function(monkeypatch, tmp_path):
    bootstrap: Any = importlib._bootstrap  # type: ignore[attr-defined]
    asked, original = [], bootstrap._find_and_load

    def find_and_load(name: str, import_: Any) -> Any:
        asked.append(name)
        return original(name, import_)

    monkeypatch.setattr(bootstrap, "_find_and_load", find_and_load)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("found_by_statement", "found_by_function"):
        (tmp_path / f"{name}.py").touch()
    importlib.invalidate_caches()
    exec("import found_by_statement")
    importlib.import_module("found_by_function")
    exec("import found_by_statement")
    assert asked == ["found_by_statement", "found_by_function"]
    assert original.__code__.co_filename == "<frozen importlib._bootstrap>"  # by this we leave it out of tracebacks


def test_threads_of_an_executor_can_be_told_from_others():
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(threading.current_thread).result()
        assert theirs in executors._threads_queues  # type: ignore[attr-defined]
        assert threading.current_thread() not in executors._threads_queues  # type: ignore[attr-defined]


def test_torch_marks_an_optimizer_whose_step_it_has_wrapped_itself():
    torch = pytest.importorskip("torch")

    class Descent(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    assert not hasattr(Descent.step, "hooked")
    Descent([torch.zeros(1, requires_grad=True)], lr=0.1)
    assert Descent.step.hooked


def test_torch_compile_can_be_told_to_stay_out_of_code_and_knows_how_modules_are_called():
    """Read, not loaded: that takes seconds, and the profiler's tests compile a module for real."""
    evaluation, helpers, modules = (
        source_of(f"torch._dynamo.{name}") for name in ("eval_frame", "utils", "variables.nn_module")
    )
    assert "\ndef skip_code(code: types.CodeType)" in evaluation
    assert "\nunpatched_nn_module_call = torch.nn.Module.__call__\n" in helpers
    assert "mod.__call__.__func__ is unpatched_nn_module_call" in modules


def source_of(module: str) -> str:
    """The text of a module that is not imported for it."""
    package, *path = module.split(".")
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent.joinpath(*path).with_suffix(".py").read_text()


def test_stable_baselines_numbers_envs_by_a_method_of_this_name():
    base = pytest.importorskip("stable_baselines3.common.vec_env").VecEnv
    assert [*inspect.signature(base._get_indices).parameters] == ["self", "indices"]
