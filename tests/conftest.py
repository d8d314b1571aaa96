"""How the tests share a machine: which of them belong together, and which take long."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SLOW = ROOT / "tests" / "slow.txt"
SLOW_SECONDS = 1.0

# Whoever started us may have had us ignore these, as `nohup` and `&` do; what is tested must hear them.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


_seconds: dict[str, float] = defaultdict(float)  # of each test, all its cases together
_slow_to_make: set[str] = set()  # files where what tests share takes long to make


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--list-slow", action="store_true", help=f"write the tests that take {SLOW_SECONDS} s and more to {SLOW.name}"
    )


@pytest.fixture(scope="session", autouse=True)
def own_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs are signed by a key of the tests' own; that of whoever runs them stays out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Kernels are compiled once, before several workers would do so at the same time."""
    if not session.config.getoption("numprocesses", None) or hasattr(session.config, "workerinput"):
        return
    from tests.warm import sources

    cache, now = session.config.cache, sources()
    if cache is None or cache.get("redline/warm", "") != now:
        subprocess.run([sys.executable, "-m", "tests.warm"], cwd=ROOT, stdout=subprocess.DEVNULL)
        if cache is not None:
            cache.set("redline/warm", now)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = listed()
    for item in items:
        if name_of(item.nodeid) in slow or is_of_ray(item.nodeid):
            item.add_marker("slow")
    if hasattr(config, "workerinput"):  # the long ones first, so that no worker waits for another in the end
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out tests one by one, but those that belong together to the same worker."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Together(config, log)


def group_of(nodeid: str) -> str:
    """What a test has to share a worker with: Ray, what is made once for its file or class, or nothing but itself.

    One cluster at a time is enough for a machine.
    """
    file = file_of(nodeid)
    return "ray" if is_of_ray(nodeid) else file if makes_once(file) else nodeid


def is_of_ray(nodeid: str) -> bool:
    """Whether a test starts Ray."""
    return file_of(nodeid).endswith("_ray.py") or re.search(r"\[(.*-)?ray\b|_ray_", nodeid) is not None


@functools.cache
def makes_once(file: str) -> bool:
    """Whether a file of tests has something that is made once for several of them."""
    return re.search(r"scope=\"(module|class)\"", (ROOT / file).read_text()) is not None


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def name_of(nodeid: str) -> str:
    """Where a test stands and how it is called, without its parameters."""
    return nodeid.partition("[")[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[name_of(report.nodeid)] += report.duration
    if report.when == "setup" and report.duration >= SLOW_SECONDS and makes_once(file_of(report.nodeid)):
        _slow_to_make.add(file_of(report.nodeid))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--list-slow") and not hasattr(session.config, "workerinput"):
        SLOW.write_text("".join(f"{test}\n" for test in sorted(slow_now() | slow_before())))


def slow_now() -> set[str]:
    """The slow tests among those that ran, and all of files where what they share is slow to make."""
    return {test for test, seconds in _seconds.items() if seconds >= SLOW_SECONDS or file_of(test) in _slow_to_make}


def slow_before() -> set[str]:
    """The tests on the list whose files are still there and did not run this time."""
    ran = {file_of(test) for test in _seconds}
    return {test for test in listed() if file_of(test) not in ran and (ROOT / file_of(test)).exists()}


def listed() -> set[str]:
    return set(SLOW.read_text().split()) if SLOW.exists() else set()
