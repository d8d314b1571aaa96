from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from redline.memory import keep_freed_memory

keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(100_000)
before = faults()
for _ in range(50):
    np.ones(100_000)
print(faults() - before)
"""


def faults(**more: str) -> int:
    """Pages that had to be waited for while an array of 200 pages was made and freed fifty times."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | more
    return int(subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_memory_that_is_freed_is_there_at_once_when_it_is_needed_again():
    assert faults() < 200


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_whoever_has_told_the_c_library_what_to_do_is_left_alone():
    assert faults(MALLOC_MMAP_THRESHOLD_="65536") > 5000
