"""A stale kernel never runs: machine code on disk is used only while all it was made of is as it was."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from redline.compiled.disk import cache_folder, make_cache_folder, unexpected
from redline.compiled.speed import QUICK, is_cached

REPOSITORY = Path(__file__).parents[2]
FILES = {
    "__init__.py": "",
    "tariff.py": "PRICE = 2\nUNRELATED = 5\n",
    "rules.py": (
        "from redline.compiled import rule\nfrom their_world.tariff import PRICE\n\n\n"
        "@rule\ndef cost(amount):\n    return PRICE * amount\n"
    ),
    "step.py": (
        "from redline.compiled import kernel\nfrom their_world.rules import cost\n\n\n"
        "@kernel\ndef step(amount):\n    return cost(amount)\n"
    ),
}


class Outcome(NamedTuple):
    result: Any
    was_compiled: bool  # rather than found on disk


class World:
    """A package of a user's, outside Redline, played by one process after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "their_world"
        self.folder.mkdir()
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def kept(self, pattern: str) -> list[Path]:
        """The files of its machine code."""
        return [*self.folder.parent.glob(f"cache/redline/kernels/their_world_*/{pattern}")]

    def load(self, name: str = "step") -> Any:
        """A module as a new process has it: nothing of the package was loaded before."""
        forget()
        importlib.invalidate_caches()
        return importlib.import_module(f"their_world.{name}")

    def play(self, argument: Any = 10, of: str = "") -> Outcome:
        """What a new process gets, for a number or for a value of type `module.Type`."""
        step = self.load().step
        module, _, kind = of.partition(".")
        result = step(getattr(importlib.import_module(f"their_world.{module}"), kind)(argument) if of else argument)
        [misses] = [*step.stats.cache_misses.values()] or [0]
        return Outcome(result, misses > 0)


def forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "their_world"]:
        del sys.modules[name]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python itself overlooks two edits in one second
    yield World(tmp_path)
    forget()


def run(folder: Path, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A script in a process that has Redline and the packages in a folder."""
    paths = os.pathsep.join([str(folder), str(REPOSITORY)])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **more}
    return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)


PLAY = "from their_world.step import step; print(step(10), sum(step.stats.cache_misses.values()))"


def test_machine_code_is_found_by_the_next_process(world):
    assert world.play() == Outcome(20, was_compiled=True)
    assert world.play() == Outcome(20, was_compiled=False)


def test_the_same_holds_for_real_processes_whatever_order_they_keep_their_sets_in(world):
    world.write("tariff.py", "PRICE = 2\n")
    world.edit("step.py", "return cost(amount)", "return cost(amount) + (0 if amount in {3, 4, 5} else 1)")
    seeds = ("1", "2")
    assert [run(world.folder.parent, PLAY, PYTHONHASHSEED=seed).stdout for seed in seeds] == ["21 1\n", "21 0\n"]
    world.edit("rules.py", "PRICE * amount", "PRICE + amount")
    assert run(world.folder.parent, PLAY).stdout == "13 1\n"


def test_an_edited_rule_in_another_file_reaches_the_kernel(world):
    world.play()
    world.edit("rules.py", "PRICE * amount", "PRICE + amount")
    assert world.play() == Outcome(12, was_compiled=True)


def test_an_edited_constant_in_a_third_file_reaches_the_kernel(world):
    world.play()
    world.edit("tariff.py", "PRICE = 2", "PRICE = 3")
    assert world.play() == Outcome(30, was_compiled=True)


def test_going_back_to_what_it_was_compiles_what_it_was(world):
    world.play()
    world.edit("tariff.py", "PRICE = 2", "PRICE = 3")
    world.play()
    world.edit("tariff.py", "PRICE = 3", "PRICE = 2")
    assert world.play().result == 20


@pytest.mark.parametrize("decorator", ["rule", "inlined", "apart", "kernel"])
def test_it_does_not_matter_how_the_edited_function_is_marked(world, decorator):
    world.write("rules.py", FILES["rules.py"].replace("rule\n", f"{decorator}\n"))
    world.play()
    world.edit("tariff.py", "PRICE = 2", "PRICE = 3")
    assert world.play() == Outcome(30, was_compiled=True)


UNRELATED = {
    "another constant of the same file": ("tariff.py", "UNRELATED = 5", "UNRELATED = 6"),
    "a function nobody calls": ("rules.py", "\n\n\n@rule", "\n\n\ndef unused():\n    return 1\n\n\n@rule"),
    "a comment": ("rules.py", "    return", "    # dearer every year\n    return"),
    "a docstring": ("rules.py", "    return", '    """What it costs."""\n    return'),
    "the end of the kernel's own file": ("step.py", "cost(amount)\n", "cost(amount)\n\n\nSTEPS = 3\n"),
    "a file of its own": ("news.py", "", ""),
}


@pytest.mark.parametrize("file, old, new", UNRELATED.values(), ids=UNRELATED)
def test_what_is_not_in_the_machine_code_does_not_compile_it_anew(world, file, old, new):
    world.play()
    if file in FILES:
        world.edit(file, old, new)
    else:
        world.write(file, "PRICE = 9\n")
    assert world.play() == Outcome(20, was_compiled=False)


VALUES = {  # what stands in tariff.py before and after an edit, and what the kernel makes of it
    "a float": ("PRICE = 0.5", "PRICE = 0.25", "PRICE * amount"),
    "a string": ("PRICE = 'a'", "PRICE = 'bb'", "len(PRICE)"),
    "a tuple of tuples": ("PRICE = ((1, 2), 3)", "PRICE = ((1, 4), 3)", "PRICE[0][1] * amount"),
    "a NumPy scalar": ("PRICE = np.int32(3)", "PRICE = np.int32(4)", "PRICE * amount"),
    "the type of a NumPy scalar": ("PRICE = np.int32(3)", "PRICE = np.float32(3.5)", "PRICE * amount"),
    "an array": ("PRICE = np.array([1, 2])", "PRICE = np.array([1, 3])", "PRICE[1] * amount"),
    "how an array lies": ("PRICE = np.ones((2, 3))", "PRICE = np.ones((3, 2)).T * 2", "PRICE[1, 2] * amount"),
    "a dtype": ("PRICE = np.dtype('i1')", "PRICE = np.dtype('i8')", "np.full(1, 300).astype(PRICE)[0]"),
    "a named tuple": (
        "class P(NamedTuple):\n    a: int\n    b: int\nPRICE = P(1, 2)",
        "class P(NamedTuple):\n    b: int\n    a: int\nPRICE = P(1, 2)",
        "PRICE.a",
    ),
    "a member": (
        "class P(IntEnum):\n    LOW = 1\n    HIGH = 2\nPRICE = P",
        "class P(IntEnum):\n    LOW = 1\n    HIGH = 3\nPRICE = P",
        "PRICE.HIGH * amount",
    ),
    "a truth": ("PRICE = True", "PRICE = False", "1 if PRICE else 2"),
    "one type for another of equal value": ("PRICE = 2", "PRICE = 2.0", "amount // (4 * PRICE) / 4"),
}


@pytest.mark.parametrize("before, after, formula", VALUES.values(), ids=VALUES)
def test_constants_of_every_kind_count(world, before, after, formula):
    header = "import numpy as np\nfrom enum import IntEnum\nfrom typing import NamedTuple\n"
    world.write("tariff.py", header + before)
    world.write("step.py", "import numpy as np\n" + FILES["step.py"].replace("cost(amount)", formula))
    world.edit("step.py", "from their_world.rules import cost", "from their_world.tariff import PRICE")
    first, again = world.play(), world.play()
    world.write("tariff.py", header + after)
    second = world.play()
    assert (first.was_compiled, again.was_compiled, second.was_compiled) == (True, False, True)
    assert first.result == again.result
    assert second.result == world.load().step.py_func(10)


def test_a_constant_named_through_its_module_counts(world):
    world.write("step.py", FILES["step.py"].replace("cost(amount)", "their_world.tariff.PRICE * amount"))
    world.edit("step.py", "from their_world.rules import cost", "import their_world.tariff")
    world.play()
    world.edit("tariff.py", "UNRELATED = 5", "UNRELATED = 6")
    assert world.play() == Outcome(20, was_compiled=False)
    world.edit("tariff.py", "PRICE = 2", "PRICE = 3")
    assert world.play() == Outcome(30, was_compiled=True)


def test_a_rule_that_is_written_below_its_kernel_counts(world):
    world.write("step.py", FILES["step.py"].replace("from their_world.rules import cost\n", ""))
    world.edit("step.py", "cost(amount)\n", "cost(amount)\n\n\nfrom their_world.rules import cost\n")
    world.play()
    world.edit("rules.py", "PRICE * amount", "PRICE + amount")
    assert world.play() == Outcome(12, was_compiled=True)


def test_a_default_counts(world):
    world.edit("rules.py", "def cost(amount)", "def cost(amount, price=PRICE)")
    world.edit("rules.py", "PRICE * amount", "price * amount")
    world.play()
    world.edit("tariff.py", "PRICE = 2", "PRICE = 3")
    assert world.play() == Outcome(30, was_compiled=True)


def test_names_in_functions_inside_functions_count(world):
    world.edit("rules.py", "PRICE * amount", "sum([PRICE for _ in range(amount)])")
    world.edit("rules.py", "rule", "kernel")  # a list is an array of a kind, which rules do not make
    world.play()
    world.edit("tariff.py", "PRICE = 2", "PRICE = 3")
    assert world.play() == Outcome(30, was_compiled=True)


MAKER = (
    "from redline.compiled import kernel\n\n\ndef make(rule, factor):\n"
    "    @kernel\n    def step(amount):\n        return rule(amount) * factor\n\n    return step\n"
)
MADE = (
    "from their_world.maker import make\nfrom their_world.rules import cost\n\n"
    "step, other = make(cost, 1), make(cost, 7)\n"
)


def test_kernels_made_by_the_same_lines_are_kept_side_by_side_and_edits_leave_no_more_files(world):
    world.write("maker.py", MAKER)
    world.write("step.py", MADE)
    assert world.play() == Outcome(20, was_compiled=True)
    assert world.load().other(10) == 140
    for price in (3, 4):
        assert world.play().was_compiled is False
        other = world.load().other
        other(10)
        assert sum(other.stats.cache_misses.values()) == 0
        world.edit("tariff.py", f"PRICE = {price - 1}", f"PRICE = {price}")
        assert world.play() == Outcome(10 * price, was_compiled=True)
        assert world.load().other(10) == 70 * price
    assert len(world.kept("maker.*.nb?")) == 4


def test_worlds_whose_kernels_are_made_by_the_same_lines_do_not_know_each_others_types(world):
    """One of them may not even be there any more."""
    world.write("maker.py", MAKER)
    world.write("step.py", MADE.replace("other", "_"))
    world.edit("rules.py", "PRICE * amount", "PRICE * amount.value")
    for name in ("first", "second"):
        world.write(f"{name}.py", "from typing import NamedTuple\n\n\nclass Amount(NamedTuple):\n    value: int\n")
    world.write(
        "elsewhere.py",
        (world.folder / "rules.py").read_text() + MADE.replace("from their_world.rules import cost\n", ""),
    )
    world.load("elsewhere").step(importlib.import_module("their_world.second").Amount(10))
    assert world.play(of="first.Amount") == Outcome(20, was_compiled=True)
    (world.folder / "second.py").unlink()
    assert world.play(of="first.Amount") == Outcome(20, was_compiled=False)


def test_a_rule_that_encloses_itself_can_be_enclosed(world):
    world.write(
        "step.py",
        "from redline.compiled import kernel, rule\n\n\ndef make():\n"
        "    @rule\n    def twice(amount):\n        return 0 if amount == 0 else 2 + twice(amount - 1)\n\n"
        "    @kernel\n    def step(amount):\n        return twice(amount)\n\n    return step\n\n\nstep = make()\n",
    )
    assert world.play() == Outcome(20, was_compiled=True)
    assert world.play() == Outcome(20, was_compiled=False)


def test_rules_that_call_each_other_in_a_circle_have_a_stamp_too(world):
    world.edit("rules.py", "    return PRICE * amount", "    return 0 if amount == 0 else PRICE + cost(amount - 1)")
    assert world.play() == Outcome(20, was_compiled=True)
    assert world.play() == Outcome(20, was_compiled=False)


INTRINSIC = """
from numba.core import types
from numba.extending import intrinsic

FACTOR = 3


def multiply(builder, number):
    return builder.mul(number, number.type(FACTOR))


@intrinsic
def priced(_, amount):
    def code(context, builder, signature, arguments):
        return multiply(builder, arguments[0])

    return types.int64(types.int64), code
"""


@pytest.mark.parametrize(
    ("old", "new", "result"), [("FACTOR = 3", "FACTOR = 4", 40), ("builder.mul", "builder.add", 13)]
)
def test_what_makes_an_intrinsic_counts(world, old, new, result):
    world.write("code.py", INTRINSIC)
    world.write("rules.py", "from redline.compiled import rule\nfrom their_world.code import priced\n\n\n"
                "@rule\ndef cost(amount):\n    return priced(amount)\n")  # fmt: skip
    assert world.play() == Outcome(30, was_compiled=True)
    assert world.play() == Outcome(30, was_compiled=False)
    world.edit("code.py", old, new)
    assert world.play() == Outcome(result, was_compiled=True)


def test_compiling_with_checks_does_not_find_machine_code_without(world):
    world.play()
    assert run(world.folder.parent, PLAY).stdout == "20 0\n"
    assert run(world.folder.parent, PLAY, NUMBA_BOUNDSCHECK="1").stdout == "20 1\n"


def test_a_type_that_was_renamed_is_no_obstacle(world):
    state = "from typing import NamedTuple\n\n\nclass State(NamedTuple):\n    amount: int\n"
    world.write("state.py", state)
    world.write("step.py", FILES["step.py"].replace("cost(amount)", "cost(amount.amount)"))
    assert world.play(of="state.State") == Outcome(20, was_compiled=True)
    assert world.play(of="state.State") == Outcome(20, was_compiled=False)
    world.edit("state.py", "class State", "class Stock")
    assert world.play(of="state.Stock") == Outcome(20, was_compiled=True)


def test_machine_code_that_another_process_left_in_its_place_is_not_taken_for_it(world):
    world.play()
    [code] = world.kept("step.step-*.nbc")
    old = code.read_bytes()
    world.edit("tariff.py", "PRICE = 2", "PRICE = 3")
    assert world.play() == Outcome(30, was_compiled=True)
    code.write_bytes(old)  # as when a process of the older version ends just now
    assert world.play() == Outcome(30, was_compiled=True)


def test_a_file_that_was_cut_short_is_no_obstacle(world):
    world.play()
    [index] = world.kept("step.step-*.nbi")
    index.write_bytes(index.read_bytes()[:-20])
    assert not is_cached(world.load().step)
    assert world.play() == Outcome(20, was_compiled=True)
    assert world.play() == Outcome(20, was_compiled=False)


def test_a_constant_that_changes_after_it_was_compiled_is_told_and_nothing_is_kept(world):
    """The rule has the old value and the kernel would have the new one: such a mixture must not reach the disk."""
    step = world.load().step
    step(10)
    sys.modules["their_world.rules"].PRICE = 3  # type: ignore[attr-defined]
    with pytest.warns(RuntimeWarning, match="PRICE in cost, which changed after it was first compiled"):
        step(10.0)
    world.edit("tariff.py", "PRICE = 2", "PRICE = 3")
    assert world.play(10.0) == Outcome(30.0, was_compiled=True)


UNSEEN = {
    "a function that Numba finds elsewhere": (
        "from numba.extending import overload\n\ndef helper(amount):\n    return amount\n\n"
        "@overload(helper)\ndef compiled_helper(amount):\n    return lambda amount: 2 * amount\n",
        "helper of their_world.helping",
    ),
    "a vectorised function": (
        "from numba import vectorize\n\n@vectorize\ndef helper(amount):\n    return 2 * amount\n",
        "helper of their_world.helping",
    ),
}


@pytest.mark.parametrize("source, named", UNSEEN.values(), ids=UNSEEN)
def test_what_cannot_be_looked_into_is_told_and_not_kept(world, source, named):
    world.write("helping.py", source)
    world.write(
        "step.py", FILES["step.py"].replace("their_world.rules import cost", "their_world.helping import helper")
    )
    world.edit("step.py", "cost(amount)", "helper(amount)")
    with pytest.warns(RuntimeWarning, match=f"step contains {named}"):
        assert world.play() == Outcome(20, was_compiled=True)
    assert not world.kept("step.step*")


def test_a_kernel_written_at_a_prompt_runs_though_it_cannot_be_kept(world):
    script = "from redline import kernel\n\n\n@kernel\ndef doubled(n):\n    return 2 * n\n\n\nprint(doubled(4))"
    assert run(world.folder, script).stdout == "8\n"


def test_this_version_of_numba_is_as_expected():
    assert unexpected() == ""
    assert QUICK, "Rules take twice as long to compile: see whether compiled/unfinished.py holds for this version."


@pytest.mark.parametrize("name", ["_source_stamp", "_load_index", "_save_index"])
def test_if_numba_renames_what_we_rely_on_nothing_is_kept_and_that_is_told(world, name):
    source = (
        "import inspect; from numba.core import caching\n"
        "source = inspect.getsource(caching.IndexDataCacheFile)\n"
        f"exec(source.replace({name!r}, '_renamed'), vars(caching))\n"
    )
    for price in (2, 3):
        world.write("tariff.py", f"PRICE = {price}\n")
        done = run(world.folder.parent, source + PLAY)
        assert done.stdout == f"{10 * price} 1\n"
        assert done.stderr.count("Machine code is not kept for the next process") == 1
        assert "IndexDataCacheFile" in done.stderr
    assert not world.kept("*.nb?")


def test_other_versions_of_numba_finish_every_rule_and_come_to_the_same(world):
    """The quick way of compiling rules is known for some versions only."""
    slow = "from redline.compiled import speed; speed.QUICK = False\n"
    shown = slow + PLAY + "; from their_world.rules import cost; print(cost._compiler.pipeline_class.__name__)"
    done = run(world.folder.parent, shown, XDG_CACHE_HOME=str(world.folder))
    assert done.stdout == "20 1\nCompiler\n", done.stderr
    done = run(world.folder.parent, shown.removeprefix(slow))
    assert done.stdout == "20 1\nRuleCompiler\n", done.stderr


def test_without_the_compiler_the_same_world_runs_as_plain_python(world):
    shown = "from their_world.step import step; print(step(10), type(step).__name__)"
    assert run(world.folder.parent, shown, NUMBA_DISABLE_JIT="1").stdout == "20 function\n"


# Whose machine code is run

PLANTED = """
import pickle, sys
from pathlib import Path

class Planted:
    def __reduce__(self):
        return (exec, ("open('was-run', 'w')",))

for path in map(Path, sys.argv[1:]):
    path.write_bytes(pickle.dumps(Planted()) * 3)
"""


def plant(files: list[Path]) -> None:
    """Put pickles that run code in the place of machine code."""
    assert files
    subprocess.run([sys.executable, "-c", PLANTED, *map(str, files)], check=True)


@pytest.mark.parametrize("setting", ["cache_dir: {}", "cache_locator_classes: planted_locator.Locator"])
def test_a_numba_config_in_the_working_directory_is_not_read(world, tmp_path, monkeypatch, setting):
    pytest.importorskip("yaml")
    gift = tmp_path / "gift"
    gift.mkdir()
    monkeypatch.chdir(gift)
    (gift / "planted_locator.py").write_text("open('was-run', 'w')\n")
    world.play()
    shutil.copytree(tmp_path / "cache" / "redline" / "kernels", gift / "planted")
    plant([*gift.glob("planted/*/*.nb?")])
    shutil.rmtree(tmp_path / "cache")
    (gift / ".numba_config.yaml").write_text(setting.format(gift / "planted"))
    assert run(tmp_path, PLAY).stdout == "20 1\n"
    assert not (gift / "was-run").exists()


def test_machine_code_beside_the_source_is_not_read(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world.play()
    beside = world.folder / "__pycache__"
    beside.mkdir()
    for path in world.kept("*.nb?"):
        path.rename(beside / path.name)
    plant([*beside.glob("*.nb?")])
    assert run(tmp_path, PLAY).stdout == "20 1\n"
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("folder", ["redline", "redline/kernels"])
def test_a_cache_that_others_can_write_to_is_not_read(world, tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    world.play()
    plant(world.kept("*.nb?"))
    (tmp_path / "cache" / folder).chmod(0o777)
    done = run(tmp_path, PLAY)
    assert done.stdout == "20 1\n"
    assert done.stderr.count(f"other users can write to {tmp_path / 'cache' / folder}") == 1
    assert not (tmp_path / "was-run").exists()


def test_a_link_in_the_place_of_the_cache_is_not_followed(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world.play()
    plant(world.kept("*.nb?"))
    (tmp_path / "cache" / "redline").rename(tmp_path / "theirs")
    (tmp_path / "cache" / "redline").symlink_to(tmp_path / "theirs")
    done = run(tmp_path, PLAY)
    assert done.stdout == "20 1\n"
    assert "is not a folder" in done.stderr
    assert not (tmp_path / "was-run").exists()


def test_a_cache_of_another_user_is_not_read(world, tmp_path, monkeypatch):
    make_cache_folder()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert make_cache_folder() == f"{tmp_path / 'cache' / 'redline'} belongs to another user"


def test_the_cache_is_this_users_alone(world, tmp_path, monkeypatch):
    world.play()
    assert (tmp_path / "cache" / "redline").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")  # it would depend on the working directory
    assert cache_folder() == Path.home() / ".cache" / "redline" / "kernels"


def test_without_a_place_for_the_cache_kernels_run_and_redline_warns_once(world, tmp_path):
    (tmp_path / "file").touch()
    done = run(tmp_path, PLAY, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert done.stdout == "20 1\n"
    assert done.stderr.count("Machine code is not kept for the next process") == 1
