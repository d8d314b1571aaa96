"""Memory that several processes share and that no crash can leave behind: it has no name, so it goes with its last user."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import reduction
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from redline.errors import RedlineError

ALIGNMENT = 64
Shapes = Mapping[str, tuple[tuple[int, ...], DTypeLike]]  # name: (shape, dtype)


class SentDescriptor(Protocol):
    """A file descriptor on its way to another process."""

    def detach(self) -> int:
        """The descriptor as that process has it."""


class SharedMemory:
    """A block of bytes behind a file descriptor, shared with every process that the descriptor is sent to.

    A process that is being started may have it among its arguments: the descriptor then goes along.
    """

    def __init__(self, num_bytes: int, fd: int | None = None) -> None:
        self.num_bytes = num_bytes
        self.fd = _reserve(num_bytes) if fd is None else fd
        self.map = mmap.mmap(self.fd, num_bytes)

    def __reduce__(self) -> tuple[Callable[..., SharedMemory], tuple[int, object]]:
        return _received, (self.num_bytes, reduction.DupFd(self.fd))

    def close(self) -> None:
        """Let go of the descriptor; the memory itself goes when the last array over it does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _received(num_bytes: int, sent: SentDescriptor) -> SharedMemory:
    return SharedMemory(num_bytes, sent.detach())


def num_bytes(shapes: Shapes) -> int:
    """Room that arrays of these shapes take together."""
    return max(1, sum(_padded(shape, dtype) for shape, dtype in shapes.values()))


def arrays_in(memory: SharedMemory, shapes: Shapes) -> dict[str, np.ndarray]:
    """Arrays of these shapes, one behind the other in the block."""
    arrays, offset = {}, 0
    for name, (shape, dtype) in shapes.items():
        arrays[name] = np.ndarray(shape, dtype, memory.map, offset)
        offset += _padded(shape, dtype)
    return arrays


def _padded(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    size = int(np.prod(shape, dtype=np.float64)) * np.dtype(dtype).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


def _reserve(size: int) -> int:
    """A nameless file whose pages are there from the start: too little memory is an error now, not a SIGBUS later."""
    free = _free_bytes()
    if size > free:
        raise RedlineError(
            f"The envs need {size / 2**20:,.0f} MB of shared memory and {free / 2**20:,.0f} MB are free. "
            "Try fewer envs (--num-envs) or --engine pipes."
        )
    fd = os.memfd_create("redline") if hasattr(os, "memfd_create") else _unlinked_file()
    try:
        os.ftruncate(fd, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
    except OSError as error:
        os.close(fd)
        raise RedlineError(
            f"{size / 2**20:,.0f} MB of shared memory cannot be had: {error.strerror}. "
            "Try fewer envs (--num-envs) or --engine pipes."
        ) from error
    return fd


def _unlinked_file() -> int:
    fd, path = tempfile.mkstemp(prefix="redline-")
    os.unlink(path)
    return fd


def _free_bytes() -> float:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(float(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float("inf")
