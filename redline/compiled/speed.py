"""One kernel, two speeds: the same functions compiled by Numba, or interpreted line by line.

Rules are written once. Calling a `kernel` runs it compiled; `interpreted(kernel)` gives its twin that runs as plain
Python, together with every rule it reaches. Both do the same arithmetic on the same arrays, so their results are equal
bit for bit, and the interpreted one can be stepped through with a debugger.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

import redline.compiled.garbage  # noqa: F401
from redline.compiled.disk import KernelCache, keep_on_disk
from redline.errors import RedlineError

QUICK = numba.__version__.startswith("0.68.")
"""Whether rules can be left unfinished until the kernel is compiled, which takes apart how this version of Numba works.
Others do the same in twice the time."""


def kernel(function: Callable[..., Any]) -> Any:
    """Marks a function that Python calls: a kernel. Its first call compiles it, with every rule it reaches.

    It must run unchanged as plain Python; it steps a slice of envs, on one thread and without the GIL. Its machine code
    is kept on disk for the next process until something it is made of changes: its own code, that of a rule, or a
    constant, in whatever file or package.
    """
    jit: Any = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)  # type: ignore[call-overload]
    compiled = jit(function)
    if isinstance(compiled, Dispatcher):  # not under NUMBA_DISABLE_JIT
        keep_on_disk(compiled)
        lend(compiled)
    return compiled


def lend(compiled: Any) -> None:
    """Have other kernels take in a kernel's code as they do that of a rule: they need no machine code of it."""
    if not QUICK:
        return
    from redline.compiled.unfinished import InnerKernelCompiler

    options = {**compiled.targetoptions, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    options.pop("nopython", None)
    inner: Any = numba.njit(pipeline_class=InnerKernelCompiler, **options)(compiled.py_func)
    inner._compiling_counter = compiled._compiling_counter  # by which one that calls itself is found out
    _take_integers_as_one(inner)
    compiled.get_call_template, compiled.get_overload = inner.get_call_template, inner.get_overload


def rule(function: Callable[..., Any]) -> Any:
    """Marks a part of a kernel that kernels and other rules call, never Python, and that makes no arrays.

    It has no door for Python and counts no references, which a function of many arrays would spend its time on. Nor is
    it kept on disk of its own, or turned into machine code: the kernel around it is, with everything in it. To try one
    out, call `interpreted(rule)`.
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
    if QUICK:
        from redline.compiled.unfinished import RuleCompiler

        bare["pipeline_class"] = RuleCompiler
    compiled: Any = numba.njit(nogil=True, error_model="numpy", **bare, **more)(function)
    if isinstance(compiled, Dispatcher):  # not under NUMBA_DISABLE_JIT
        _take_integers_as_one(compiled)
        _compile_quickly(compiled)
        _refuse_python(compiled)
    return compiled


def _take_integers_as_one(compiled: Any) -> None:
    """Have a rule compiled once for signed integers of all sizes."""
    if QUICK:
        from redline.compiled.unfinished import widened

        resolve: Any = compiled.get_call_template
        compiled.get_call_template = lambda args, kws: resolve([widened(kind) for kind in args], kws)


def _compile_quickly(compiled: Any) -> None:
    if QUICK:
        from redline.compiled.unfinished import compile_quickly

        compiled.compile = functools.partial(compile_quickly, compiled)


def _refuse_python(compiled: Any) -> None:
    """Have a rule say so when Python calls it: there is no machine code that could be run by itself."""

    def refuse(*_: object, **__: object) -> None:
        name = compiled.py_func.__name__
        raise RedlineError(
            f"{name} is a rule, which only kernels call. Mark it `kernel`, or try `interpreted({name})`."
        )

    compiled._compile_for_args, compiled._insert = refuse, lambda *_, **__: None


def spared(compiled: Any, never: Callable[[Any], bool]) -> Any:
    """A rule that kernels are compiled without where `never(type of its first argument)`: its callers take in one that
    only returns 0. They must not call it then, which types alone say to the compiler.
    """
    if not isinstance(compiled, Dispatcher):  # under NUMBA_DISABLE_JIT
        return compiled
    rule: Any = compiled
    nothing = _nothing(rule.py_func.__code__.co_argcount)
    template, overload = rule.get_call_template, rule.get_overload
    rule.get_call_template = lambda args, kws: (nothing.get_call_template if never(args[0]) else template)(args, kws)
    rule.get_overload = lambda args: (nothing.get_overload if never(args[0]) else overload)(args)
    return rule


@functools.cache
def _nothing(num_arguments: int) -> Any:
    """A rule of so many arguments that returns 0."""
    return _inner(eval(f"lambda {', '.join(f'a{k}' for k in range(num_arguments))}: 0"), forceinline=True)


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
    cache: Any = getattr(function, "_cache", None)
    return isinstance(cache, KernelCache) and not cache.is_empty()


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a kernel function that runs as plain Python. Integer overflow wraps, as it does when compiled."""
    twin = _uncompiled(function)

    @functools.wraps(twin)
    def call(*args: Any, **named: Any) -> Any:
        with np.errstate(over="ignore"):
            return twin(*args, **named)

    return call


@functools.cache
def _uncompiled(function: Any) -> Callable[..., Any]:
    """`function` rebuilt so that the kernel functions it reaches are uncompiled as well."""
    return _Twins().twin(function)


class _Twins:
    """Plain Python twins of kernel functions that call each other, perhaps in a circle."""

    def __init__(self) -> None:
        self._made: dict[Any, types.FunctionType] = {}

    def twin(self, function: Any) -> types.FunctionType:
        """The same code, in a scope where other kernel functions are twins too."""
        if function not in self._made:
            source = function.py_func if isinstance(function, Dispatcher) else function
            scope, cells = dict(source.__globals__), tuple(types.CellType() for _ in source.__closure__ or ())
            twin = types.FunctionType(source.__code__, scope, source.__name__, source.__defaults__, cells)
            twin.__kwdefaults__ = source.__kwdefaults__
            self._made[function] = twin
            scope |= {name: self.replaced(scope[name]) for name in _names_in(source.__code__) if name in scope}
            for cell, original in zip(cells, source.__closure__ or (), strict=True):
                cell.cell_contents = self.replaced(original.cell_contents)
        return self._made[function]

    def replaced(self, value: Any) -> Any:
        """What stands in a twin's scope for a value of the original's."""
        if isinstance(value, Dispatcher):
            return self.twin(value)
        if isinstance(value, types.ModuleType):
            return _Uncompiled(value, self)
        return getattr(value, "interpreted", value)  # what is neither says itself what it is to Python


class _Uncompiled:
    """A module of which kernel functions are taken as their twins: for code that says `module.rule(…)`."""

    def __init__(self, module: types.ModuleType, twins: _Twins) -> None:
        self._module, self._twins = module, twins

    def __getattr__(self, name: str) -> Any:
        value = self._twins.replaced(getattr(self._module, name))
        setattr(self, name, value)  # the next time it is found without us
        return value


def _names_in(code: types.CodeType) -> set[str]:
    """The names a function looks up, and those of functions written inside it."""
    inside = [_names_in(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inside)
