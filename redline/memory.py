"""Memory that is freed and needed again a moment later.

Kernels make arrays of some hundred kilobytes and free them at their end. The C library hands such pieces back to the
system, and the next call then waits for every page of theirs: an eighth of the time of a gradient.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h of glibc numbers them
KEPT, LARGEST = 128 << 20, 32 << 20
"""Bytes that are kept at most, and of the largest piece among them."""


@functools.cache
def keep_freed_memory() -> None:
    """Have this process keep what it frees for the next time. Does nothing where the user has told the C library what to
    do (`MALLOC_…`), or where that is another one than glibc.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, KEPT)
        library.mallopt(_MMAP_THRESHOLD, LARGEST)
