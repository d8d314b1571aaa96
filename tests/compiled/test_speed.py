from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import pytest

import redline
import redline.compiled
from redline.compiled import rng
from redline.compiled.speed import at_speed, inlined, interpreted, is_cached, is_compiled, kernel, rule
from redline.errors import RedlineError

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


def test_a_kernel_inside_another_is_compiled_for_itself_only_when_python_calls_it():
    @kernel
    def inside(number):
        return number + 1

    @kernel
    def around(number):
        return inside(inside(number))

    assert around(3) == 5
    assert not is_compiled(inside)
    assert inside(3) == 4
    assert is_compiled(inside)


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
    path.write_text(
        "from redline.compiled.speed import kernel\n\n\n@kernel\ndef tripled(number):\n    return 3 * number\n"
    )
    tripled = load(path).tripled
    assert (is_compiled(tripled), is_cached(tripled)) == (False, False)
    assert tripled(5) == 15
    assert (is_compiled(tripled), is_cached(tripled)) == (True, True)
    again = load(path).tripled
    assert (is_compiled(again), is_cached(again)) == (False, True)


def test_a_plain_function_needs_no_compilation():
    assert is_compiled(len)
    assert is_cached(len)


def tripled_by(factor_of: Any) -> Any:
    @rule
    def three(number):
        return factor_of(number) + number

    @kernel
    def tripled(number):
        return three(number)

    return tripled


def test_a_twin_is_python_also_where_it_reaches_rules_through_a_closure():
    tripled = tripled_by(doubled)
    assert tripled(4) == interpreted(tripled)(4) == 12
    assert "doubled" in python_functions_run_by(lambda: interpreted(tripled)(4))


@kernel
def mixed(counter):
    return rng.scramble(counter)


def test_a_twin_is_python_also_where_it_reaches_rules_through_their_module():
    assert "scramble" in python_functions_run_by(lambda: interpreted(mixed)(LARGEST))
    assert interpreted(mixed)(LARGEST) == mixed(LARGEST)


@kernel
def factorial(number):
    return 1 if number < 2 else number * factorial(number - 1)


def test_a_kernel_may_call_itself_at_both_speeds():
    assert factorial(10) == interpreted(factorial)(10) == 3628800


def test_a_rule_that_python_calls_says_so_before_and_after_its_kernel_is_compiled():
    for _ in range(2):
        with pytest.raises(RedlineError, match="twice_next_to is a rule, which only kernels call"):
            twice_next_to(3)
        rules_on_all_kinds_of_integers(np.array([3, 5], np.int32))
    assert interpreted(twice_next_to)(3) == 8


def test_the_public_names_are_these():
    assert redline.kernel is redline.compiled.kernel is kernel
    assert all(hasattr(redline.compiled, name) for name in redline.compiled.__all__)
