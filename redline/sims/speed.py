"""One kernel, two speeds: the same functions compiled by Numba, or interpreted line by line.

Rules are written once and marked with `kernel`. Calling such a function runs it compiled; `interpreted(function)` gives
its twin that runs as plain Python, together with every kernel function it calls. Both do the same arithmetic on the same
arrays, so their results are equal bit for bit, and the interpreted one can be stepped through with a debugger.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

QUICK = numba.__version__.startswith("0.68.")
"""Whether rules can be left unfinished until the kernel is compiled, which takes apart how this version of Numba works.
Others do the same in twice the time."""


def kernel(function: Callable[..., Any]) -> Any:
    """Marks a function as part of a kernel. It must run unchanged as plain Python.

    Machine code contains what a function calls and the constants it names, wherever they are written. Numba looks for
    edits in the function's own file only, so without a stamp over all rules a process would go on with outdated ones.
    """
    jit: Any = numba.njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)  # type: ignore[call-overload]
    compiled = jit(function)
    cached: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(cached, "_source_stamp"):
        cached._source_stamp = (cached._source_stamp, _stamp_of_all_rules())
    return compiled


def rule(function: Callable[..., Any]) -> Any:
    """Marks a part of a kernel that other kernel functions call, never Python, and that makes no arrays.

    It has no door for Python and counts no references, which a function of many arrays would spend its time on. Nor is
    it kept on disk of its own, or turned into machine code: the kernel around it is, with everything in it.
    """
    return _inner(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Marks a rule that is copied into each of its callers: for what is small, or called in one place only."""
    return _inner(function, forceinline=True)


def apart(function: Callable[..., Any]) -> Any:
    """Marks a rule that is never copied into its callers: for what is large and rarely called. A call costs, but a copy
    takes long to compile.
    """
    return _inner(function, forceinline=False)


def _inner(function: Callable[..., Any], **more: Any) -> Any:
    # leaving forceinline out is not the same as False: it lets LLVM choose, and everything apart is half as fast
    bare: dict[str, Any] = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    if not QUICK:
        return numba.njit(nogil=True, error_model="numpy", **bare, **more)(function)
    from redline.sims.unfinished import RuleCompiler, widened

    jit: Any = numba.njit(nogil=True, error_model="numpy", pipeline_class=RuleCompiler, **bare, **more)
    compiled: Any = jit(function)
    if isinstance(compiled, Dispatcher):  # not under NUMBA_DISABLE_JIT
        resolve: Any = compiled.get_call_template
        compiled.get_call_template = lambda args, kws: resolve([widened(kind) for kind in args], kws)  # type: ignore[method-assign]
    return compiled


@functools.cache
def _stamp_of_all_rules() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def at_speed(function: Callable[..., Any], turbo: bool) -> Callable[..., Any]:
    """`function` compiled when `turbo`, interpreted otherwise (and always under NUMBA_DISABLE_JIT)."""
    return function if turbo and isinstance(function, Dispatcher) else interpreted(function)


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether this process has machine code for `function` already, compiled or loaded from the cache on disk."""
    return not isinstance(function, Dispatcher) or bool(function.signatures)


def is_cached(function: Callable[..., Any]) -> bool:
    """Whether an earlier process left machine code of `function` on disk, so that the first call starts at once."""
    if not isinstance(function, Dispatcher):
        return True
    index: Any = getattr(getattr(function, "_cache", None), "_cache_file", None)
    path = getattr(index, "_index_path", None)
    if path is None:
        return False
    try:
        return bool(index._load_index())
    except OSError:
        return False


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a kernel function that runs as plain Python. Integer overflow wraps, as it does when compiled."""
    twin = _uncompiled(function)

    @functools.wraps(twin)
    def call(*args: Any) -> Any:
        with np.errstate(over="ignore"):
            return twin(*args)

    return call


@functools.cache
def _uncompiled(function: Any) -> Callable[..., Any]:
    """`function` rebuilt so that the kernel functions it names are uncompiled as well."""
    source = function.py_func if isinstance(function, Dispatcher) else function
    scope = dict(source.__globals__)
    for name in source.__code__.co_names:
        if isinstance(scope.get(name), Dispatcher):
            scope[name] = _uncompiled(scope[name])
    return types.FunctionType(source.__code__, scope, source.__name__, source.__defaults__, source.__closure__)
