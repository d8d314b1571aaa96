"""What the docs say is true: their commands run, their options, files, links and classes exist.

Every command in a fenced block of README.md and docs/*.md is run, in the order of the page and in a folder of its own. What
would take minutes is made small by `SMALLER`; what a page takes for granted, such as a net of one's own, is laid out by
`SUPPLIES`; `runs/NAME-…` is a run that was made before.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redline.cli import main
from redline.cli.options import HELP, Asked, asking
from redline.errors import RedlineError
from tests.worlds.nasim.networks import write_network

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)

SMALL_TRAINING = {"--num-envs": "8", "--num-steps": "16", "--total-steps": "256", "--eval-episodes": "4"}
SMALL_SWEEP = {"--num-envs": "8", "--num-steps": "16", "--total-steps": "128", "--eval-episodes": "2", "--seeds": "1"}
SMALL_NET = {**SMALL_TRAINING, "--elite": "0", "--warm-start": "none"}
SMALL_PROFILE = {"--num-envs": "4", "--num-steps": "8", "--batches": "1"}
SMALL_SEARCH = {
    "--total-episodes": "80", "--episodes-per-update": "20", "--max-episodes-per-workflow": "40", "--min-updates": "1",
    "--max-steps": "20", "--eval-episodes": "4", "--compliance-threshold": "0",
}  # fmt: skip
SMALL_IMPROVEMENT = {
    "--episodes": "16", "--states": "2", "--judging": "4", "--lessons": "4", "--tries": "2", "--deciding": "4",
}  # fmt: skip
SMALLER: dict[str, dict[str, str]] = {  # the longest beginning of a command counts
    "train": SMALL_TRAINING,
    "train --resume": {},
    "train petri:": SMALL_NET,
    "play": {},
    "play cage4": {"--steps": "20"},
    "train cage2 --total-steps 500000 --seeds": SMALL_SWEEP,
    "sweep": SMALL_SWEEP,
    "sweep cage2 --learning-rate 1e-4..1e-2": {**SMALL_SWEEP, "--random": "2"},
    "sweep --resume": {},
    "eval runs/cage2": {"--episodes": "4"},
    "eval runs/nasim": {"--episodes": "4"},
    "eval runs/search": {"--episodes": "4"},
    "eval runs/petri": {"--samples": "2", "--solve-seconds": "0"},
    "eval petri:": {"--solve-seconds": "0"},
    "eval champion": {"--episodes": "4"},
    "improve": SMALL_IMPROVEMENT,
    "search": SMALL_SEARCH,
    "search --resume": {},
    "solve": {"--seconds": "1"},
    "verify nasim": {"--steps": "20"},
    "profile": SMALL_PROFILE,
    "profile --run": {},
    "profile --script": {},
    "bench sim": {"--batch-sizes": "4", "--threads": "1", "--seconds": "0.01", "--turns": "1"},
}
PLACEHOLDERS = {"ENV": "slow?mean_ms=0.05&max_steps=10", "…": ""}
RUNS = {  # what `runs/NAME-…` is made by, where no command of the page has made one
    "cage2": "train cage2",
    "nasim": "train nasim:medium",
    "petri": "train petri:jobshop/ft06",
    "search": "search cage2",
}
NOT_HERE = {
    "redline search cage2 --parallel-workflows 8 --runner ray --ray-address auto": "needs a running Ray cluster"
}

START_UP = ("first_step_seconds", "cold_compile_seconds")
MY_ENV = "import gymnasium as gym\n\n\ndef make():\n    return gym.make('CartPole-v1')\n"
MY_SCRIPT = "import torch\n\nlayer = torch.nn.Linear(2, 1)\nlayer(torch.ones(3, 2)).sum().backward()\n"


def my_package() -> None:
    Path("my_package").mkdir()
    Path("my_package/__init__.py").touch()
    Path("my_package/my_env.py").write_text(MY_ENV)


SUPPLIES: dict[str, Callable[[], object]] = {  # made where a command or a piece of Python mentions them
    "my_package": my_package,
    "train.py": lambda: Path("train.py").write_text(MY_SCRIPT),
    "recording.npz": lambda: shutil.copy(DATA / "cage2_leaderboard.npz", "recording.npz"),
    "my_net.pnml": lambda: shutil.copy(DATA / "petri/pnml/kanban_1.pnml", "my_net.pnml"),
    "my_network.yaml": lambda: write_network(Path("my_network.yaml"), 0),
    "schedule.json": lambda: main(["eval", "petri:jobshop/ft06", "--policy", "SPT", "--export", "schedule.json"]),
    "tests/data": lambda: Path("tests").symlink_to(ROOT / "tests"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to run a page in. Nothing is compiled anew for a start-up time, and nothing of the folder stays imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("redline.bench.sim.start_up_seconds", lambda name, options: dict.fromkeys(START_UP, 1.0))
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if name.partition(".")[0] == "my_package":
            del sys.modules[name]


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The fenced blocks of a page that are in one of the languages."""
    for language, body in FENCED.findall(page.read_text()):
        if language in languages:
            yield body


def commands(page: Path) -> list[str]:
    """The `redline` commands in the fenced blocks of a page, without the comments behind them."""
    lines = [line.partition(" #")[0].strip() for body in blocks(page, "", "sh", "bash") for line in body.splitlines()]
    return [line for line in lines if line.startswith("redline ")]


def names(pages: list[Path]) -> list[str]:
    return [page.relative_to(ROOT).as_posix() for page in pages]


A_SCRIPT = ROOT / "docs/worlds.md"  # its blocks belong together: test_docs_worlds.py runs them
WITH_COMMANDS = [page for page in PAGES if commands(page) and page != A_SCRIPT]
WITH_PYTHON = [page for page in PAGES if any(blocks(page, "python")) and page != A_SCRIPT]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=names(WITH_COMMANDS))
def test_every_command_in_a_fenced_block_runs(page, folder):
    for command in commands(page):
        if command not in NOT_HERE:
            supply(command)
            words = smaller([filled for word in shlex.split(command)[1:] if (filled := resolved(word))])
            assert main(words) == 0, f"{page.name}: {command} (as {shlex.join(words)})"


def supply(text: str) -> None:
    """Lay out what a text mentions and is not there yet."""
    for name, make in SUPPLIES.items():
        if name in text and not Path(name).exists():
            make()


def resolved(word: str) -> str:
    """A word of a command with placeholders filled in; empty where it stands for more words."""
    name, dots, rest = word.removeprefix("runs/").partition("-…")
    if word.startswith("runs/") and dots:
        return f"{a_run(name)}{rest}"
    return PLACEHOLDERS.get(word, word)


def a_run(name: str) -> Path:
    """The newest run whose folder begins with a name."""
    if not list(Path("runs").glob(f"{name}*")):
        assert main(smaller([*RUNS[name.partition("-")[0]].split(), "-q"])) == 0
    return max(Path("runs").glob(f"{name}*"), key=lambda path: path.stat().st_mtime)


def smaller(words: list[str]) -> list[str]:
    """A command with the options that make it small."""
    line = " ".join(words)
    beginning = max((each for each in SMALLER if line.startswith(each)), key=len, default=None)
    options = {} if beginning is None else SMALLER[beginning]
    if "--total-episodes" in words and "--total-steps" in options:
        options = {**{k: v for k, v in options.items() if k != "--total-steps"}, "--total-episodes": "8"}
    for option, value in options.items():
        if option in words:
            words[words.index(option) + 1] = value
        else:
            words = [*words, option, value]
    return words


@pytest.mark.parametrize("page", WITH_PYTHON, ids=names(WITH_PYTHON))
def test_every_piece_of_python_runs(page, folder):
    for body in blocks(page, "python"):
        supply(body)
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-c", body],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{page.name}:\n{body}\n{done.stderr}"


def mentioned_commands(page: Path) -> list[str]:
    """Commands in running text and in tables, without those that leave something open."""
    found = re.findall(r"`(redline [a-z][^`]*)`", FENCED.sub("", page.read_text()))
    whole = [" ".join(command.split()) for command in found]
    return [each for each in whole if not re.search(r"…|\b[A-Z]{1,9}\b(?!_|-)|[|$]", strip_values(each))]


def strip_values(command: str) -> str:
    """A command without names in which capital letters mean something."""
    return re.sub(r"petri:\S+|\w+_lineAgent|A=\S+", "", command)


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_in_running_text_have_options_that_exist(page):
    for command in mentioned_commands(page):
        words = shlex.split(command)[1:]
        if len(words) < 2 or words[0] == "completion" or words[:2] == ["profile", "--script"]:
            continue
        with asking():
            try:
                main([*words, "--help"])
            except Asked as answer:
                rest = words[2:] if words[0] == "bench" else words[1:]
                try:
                    answer.parser.given([word for word in rest if word not in HELP])
                except RedlineError as error:
                    assert " needs " in str(error), f"{page.name}: {command}: {error}"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_and_files_exist(page):
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
    for path in re.findall(r"`((?:redline|tests|examples|docs|benchmarks)/[\w./]+)`", text.replace("NAME", "…")):
        assert (ROOT / path).exists(), f"{page.name} names {path}"
    for module in re.findall(r"`(redline(?:\.[a-z_0-9]+)+)`", text):
        assert is_module_or_name(module), f"{page.name} names {module}"


def is_module_or_name(dotted: str) -> bool:
    package, _, name = dotted.rpartition(".")
    try:
        return hasattr(importlib.import_module(package), name) or bool(importlib.import_module(dotted))
    except ImportError:
        return False


def defined_names() -> dict[str, list[str]]:
    """Classes, functions and names at the top of the package's files, with the files."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "redline").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    return found


def test_every_class_of_the_glossary_exists_once():
    rows = re.findall(r"^\| [^|]+ \| `(\w+)` \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    defined = defined_names()
    assert len(rows) > 20
    for name in rows:
        assert len(defined.get(name, [])) == 1, f"{name}: {defined.get(name)}"


def test_every_target_that_the_docs_name_is_in_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for body in (*blocks(page, "", "sh", "bash"), *re.findall(r"`(make [a-z-]+)`", page.read_text())):
            for target in re.findall(r"^make ([a-z-]+)", body, re.MULTILINE):
                assert target in targets, f"{page.name}: make {target}"


def test_the_manual_is_one_site_with_every_page_and_a_search(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the docs extra")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    for page in (ROOT / "docs").glob("*.md"):
        assert (tmp_path / "site" / f"{page.stem}.html").exists(), page.name
    assert "within noise" in (tmp_path / "site" / "search" / "search_index.json").read_text()
