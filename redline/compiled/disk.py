"""Machine code kept on disk from one process to the next, under the stamp of what it was made of.

Numba keeps machine code too, but looks for edits in the kernel's own file only: a rule or a constant edited in another
file would go unnoticed, and the old machine code run on. So the stamp stands in Numba's place of its own, and once more
beside the machine code itself. All this takes part in how Numba works inside; where that is not as it is known to be,
nothing is kept.

Machine code is read with pickle, so whoever writes it can run code here. It is kept in one folder that only this user can
write to, and never in a folder that a file in the working directory names.
"""

from __future__ import annotations

import functools
import os
import stat
import warnings
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, config
from numba.core.dispatcher import Dispatcher

from redline.compiled.stamp import UnseenError, enclosed, stamp
from redline.compiled.turn import CompileTurn

_RELIED_ON = {  # methods of Numba's, and names in them that have to mean what they mean today
    "Dispatcher.compile": ("_cache", "load_overload", "save_overload"),
    "FunctionCache.__init__": ("_impl_class", "_impl", "filename_base", "_cache_file"),
    "FunctionCache._load_overload": ("_index_key", "rebuild"),
    "FunctionCache._save_overload": ("_index_key", "reduce"),
    "FunctionCache._index_key": ("magic_tuple",),
    "CacheImpl.__init__": ("_locator_classes", "from_function"),
    "UserWideCacheLocator.__init__": ("_cache_path", "get_suitable_cache_subpath"),
    "CompileResultCacheImpl.reduce": ("_reduce",),
    "CompileResultCacheImpl.rebuild": ("_rebuild",),
    "IndexDataCacheFile._load_index": ("_source_stamp", "_index_path"),
    "IndexDataCacheFile._save_index": ("_source_stamp",),
}
_Code: Any = getattr(caching, "CompileResultCacheImpl", object)
_Cache: Any = getattr(caching, "FunctionCache", object)
_Locator: Any = getattr(caching, "UserWideCacheLocator", object)

config._config_fname = os.devnull
config.reload_config()  # without what a .numba_config.yaml in the working directory had set


def cache_folder() -> Path:
    """The folder of this user's machine code."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(root):  # a relative one would depend on the working directory
        root = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root, "redline", "kernels")


def make_cache_folder() -> str:
    """Make the cache folder where it is missing. Returns why it cannot be used, or nothing."""
    folder = cache_folder()
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for private in (folder.parent, folder):
            private.mkdir(mode=0o700, exist_ok=True)
            found = os.lstat(private)
            if not stat.S_ISDIR(found.st_mode):
                return f"{private} is not a folder"
            if found.st_uid != os.geteuid():
                return f"{private} belongs to another user"
            if found.st_mode & 0o022:
                return f"other users can write to {private}"
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    return ""


class PrivateLocator(_Locator):
    """Keeps machine code in the cache folder, with a subfolder for each folder of source files."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(cache_folder() / self.get_suitable_cache_subpath(file))


class StampedCode(_Code):
    """Numba's own way to write machine code down, with the stamp beside it."""

    stamp = ""
    _locator_classes = [PrivateLocator]

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._maker = enclosed(function)

    @property
    def filename_base(self) -> str:
        """Kernels made by the same lines around other rules have files of their own: each world has its types in them."""
        return super().filename_base + self._maker

    def reduce(self, cres: Any) -> Any:
        """The form that is written to disk."""
        return self.stamp, super().reduce(cres)

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """The machine code, or None if it is of another stamp: another process may have replaced the file meanwhile."""
        made_of, code = payload
        return super().rebuild(target_context, code) if made_of == self.stamp else None


class KernelCache(_Cache):
    """The machine code of one kernel on disk. Whatever it was made of is looked at anew at each look-up.

    Of several processes that need a kernel only one compiles it: the others wait for what it leaves on disk.
    """

    _impl_class = StampedCode

    def __init__(self, kernel: Dispatcher) -> None:
        super().__init__(kernel.py_func)
        self._kernel = kernel
        self._turn = CompileTurn(f"{self._cache_file._index_path}.turn", kernel)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The machine code for arguments of these types, if it is there and up to date.

        If it is not, it is this process's turn to compile it, and nobody else's until it is kept.
        """
        if not self._restamp():
            return None
        found = self._load(sig, target_context)
        if found is None and self._turn.take():
            found = self._load(sig, target_context)  # somebody may have kept it meanwhile
        if found is not None:
            self._turn.end()
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except OSError:
            raise
        except Exception:  # half written, or of types that have been renamed since: it cannot even be read
            self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep machine code, unless what it is made of changed while it was compiled."""
        before = self._impl.stamp
        try:
            if self._restamp() and self._impl.stamp == before:
                super().save_overload(sig, data)
        finally:
            self._turn.end()

    def is_empty(self) -> bool:
        """Whether there is nothing up to date on disk."""
        try:
            return not (self._restamp() and self._cache_file._load_index())
        except Exception:  # see load_overload
            return True

    def _restamp(self) -> bool:
        """Takes the stamp of what the kernel is made of now. False where that cannot be known."""
        try:
            self._impl.stamp = stamp(self._kernel)
        except UnseenError as error:
            warn_of_no_cache(f"{self._kernel.py_func.__qualname__} contains {error}, which may change unnoticed.")
            return False
        self._cache_file._source_stamp = self._impl.stamp
        return True

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """What machine code is found by: the types of the arguments, and this kind of processor."""
        return sig, codegen.magic_tuple()


def keep_on_disk(kernel: Dispatcher) -> None:
    """Have the machine code of a kernel kept for later processes, or warn of why it is not."""
    missing = unexpected()
    if missing:
        warn_of_no_cache(f"Numba {numba.__version__} does not keep it in a way that is known here: {missing}.")
        return
    problem = make_cache_folder()
    if problem:
        warn_of_no_cache(f"{problem}.")
        return
    try:
        kernel._cache = KernelCache(kernel)  # type: ignore[attr-defined]
    except RuntimeError:  # written at a prompt, so there is no file that it belongs to
        return


@functools.cache
def unexpected() -> str:
    """What is not as expected in this version of Numba, or nothing."""
    return ", ".join(
        f"{method} has no {name}"
        for method, names in _RELIED_ON.items()
        for name in names
        if not _mentions(method, name)
    )


def _mentions(method: str, name: str) -> bool:
    owner, _, attribute = method.partition(".")
    found: Any = getattr(Dispatcher if owner == "Dispatcher" else getattr(caching, owner, None), attribute, None)
    return name in getattr(getattr(found, "__code__", None), "co_names", ())


def warn_of_no_cache(reason: str) -> None:
    """Say, once for each reason, that a kernel is compiled by every process anew."""
    warnings.warn(f"Machine code is not kept for the next process: {reason}", RuntimeWarning, stacklevel=2)
