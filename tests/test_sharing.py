"""What is made once for a file is made once, also where several processes run the tests (see conftest.py)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import group_of


@pytest.fixture(scope="module")
def makers(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file with a line for every process that has made this, in the present run of all tests."""
    run = getattr(request.config, "workerinput", {}).get("testrunuid", "alone")
    path = Path(tempfile.gettempdir()) / f"redline-tests-{run}"
    with path.open("a") as file:
        file.write("made\n")
    yield path
    path.unlink()


@pytest.mark.parametrize("case", range(40))
def test_tests_that_share_something_are_run_by_one_process(makers, case):
    assert makers.read_text() == "made\n"


def test_tests_of_ray_belong_together_and_others_may_go_anywhere():
    file = "tests/test_layering.py"
    assert group_of("tests/engines/test_ray.py::test_it") == "ray"
    assert group_of(f"{file}::test_it[ray]") == group_of(f"{file}::test_it[cage2-ray-3]") == "ray"
    assert group_of(f"{file}::test_it[array]") == f"{file}::test_it[array]"
