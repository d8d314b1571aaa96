from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import pytest

import redline
from redline.sims import rng
from redline.sims.speed import at_speed, inlined, interpreted, is_cached, is_compiled, kernel, rule

LARGEST = np.uint64((1 << 64) - 1)


@kernel
def doubled(number):
    return number + number


@kernel
def quadrupled(number):
    return doubled(doubled(number))


@inlined
def next_to(number):
    return number + 1


@rule
def twice_next_to(number):
    return 2 * next_to(number)


@kernel
def rules_on_all_kinds_of_integers(numbers):
    total = twice_next_to(1) + twice_next_to(len(numbers))
    for n in range(numbers.shape[0]):
        total += twice_next_to(numbers[n]) + next_to(n)
    return total


def python_functions_run_by(call: Callable[[], Any]) -> list[str]:
    names = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return names


def test_interpreted_runs_python_all_the_way_down():
    names = python_functions_run_by(lambda: interpreted(quadrupled)(3))
    assert names.count("quadrupled") == 1
    assert names.count("doubled") == 2


def test_compiled_runs_no_python():
    quadrupled(3)  # compiles
    assert "doubled" not in python_functions_run_by(lambda: quadrupled(3))


def test_a_rule_is_compiled_once_for_all_signed_integers_and_only_as_part_of_its_kernel():
    numbers = np.array([3, 5], np.int32)
    assert rules_on_all_kinds_of_integers(numbers) == interpreted(rules_on_all_kinds_of_integers)(numbers) == 33
    rules_on_all_kinds_of_integers.recompile()  # an earlier process may have left it on disk, whole
    for part in (twice_next_to, next_to):
        [compiled] = part.overloads.values()
        assert compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name) == 0


def test_interpreting_a_function_leaves_the_compiled_one_alone():
    interpreted(quadrupled)
    assert quadrupled.py_func.__globals__["doubled"] is doubled


def test_turbo_chooses_between_the_two():
    assert at_speed(quadrupled, turbo=True) is quadrupled
    assert "quadrupled" in python_functions_run_by(lambda: at_speed(quadrupled, turbo=False)(3))


@pytest.mark.parametrize("function", [doubled, rng.scramble])
def test_large_integers_wrap_at_both_speeds_without_a_warning(function):
    assert interpreted(function)(LARGEST) == function(LARGEST)


def test_wrapped_integers_keep_their_type():
    assert interpreted(doubled)(LARGEST) == np.uint64((1 << 64) - 2)
    assert interpreted(doubled)(LARGEST).dtype == np.uint64


def test_overflow_is_silent_in_kernels_only():
    interpreted(doubled)(LARGEST)
    with pytest.warns(RuntimeWarning, match="overflow"):
        LARGEST + LARGEST


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_call_compiles_and_leaves_machine_code_for_the_next_process(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text("from redline.sims.speed import kernel\n\n\n@kernel\ndef tripled(number):\n    return 3 * number\n")
    tripled = load(path).tripled
    assert (is_compiled(tripled), is_cached(tripled)) == (False, False)
    assert tripled(5) == 15
    assert (is_compiled(tripled), is_cached(tripled)) == (True, True)
    again = load(path).tripled
    assert (is_compiled(again), is_cached(again)) == (False, True)


def test_a_plain_function_needs_no_compilation():
    assert is_compiled(len)
    assert is_cached(len)


def test_an_edited_rule_reaches_the_kernels_in_other_files_that_use_it(tmp_path):
    package = Path(redline.__file__).parent
    copy = tmp_path / "redline"
    (copy / "sims").mkdir(parents=True)
    for name in ("sims/__init__.py", "sims/speed.py", "sims/unfinished.py"):
        shutil.copy(package / name, copy / name)
    (copy / "__init__.py").touch()
    (copy / "sims" / "kernel.py").write_text(
        "from redline.sims.rule import rule\nfrom redline.sims.speed import kernel\n\n\n"
        "@kernel\ndef step():\n    return rule()\n"
    )

    def play_with(rule: str) -> str:
        source = f"from redline.sims.speed import kernel\n\n\n@kernel\ndef rule():\n    return {rule}\n"
        (copy / "sims" / "rule.py").write_text(source)
        script = "from redline.sims.kernel import step; print(step())"
        command = [sys.executable, "-c", script]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert play_with("1") == "1"
    assert play_with("2") == "2"
