"""What the machine code of a kernel is made of, as one short stamp: equal stamps, equal machine code.

Machine code contains every function that the kernel reaches and the values of all constants these name, in whatever
file they are written. They are looked up here as the compiler looks them up: through globals, closures and
`module.NAME`, and as they are in this process, not as their files have become since.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import inspect
import pkgutil
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

_PLAIN = (type(None), bool, int, float, complex, str, bytes, slice, range, type(Ellipsis), type(NotImplemented))
_KNOWN = {"builtins", "math", "cmath", "operator", "random", "numpy", "numba"}  # packages that come in versions
_SETTINGS = ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE")
_COMPILER = ("speed.py", "unfinished.py", "rows.py")  # these say how rules are compiled
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_MISSING = object()
_Intrinsic = type(intrinsic(lambda _: None))


class UnseenError(Exception):
    """Something goes into machine code and cannot be looked into."""


class Lookup(NamedTuple):
    """A name that code looks up, and the attributes it asks of it: `module.NAME` has one."""

    name: str
    attributes: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.name, *self.attributes))


def stamp(kernel: Callable[..., Any]) -> str:
    """A digest of all that goes into the machine code of `kernel`. Raises `UnseenError` where that cannot be known."""
    settings = [getattr(numba.config, name, None) for name in _SETTINGS]
    contents = (np.__version__, numba.__version__, settings, _compiler(), _Walk().described(kernel))
    return hashlib.sha256(repr(contents).encode()).hexdigest()


def enclosed(function: types.FunctionType) -> str:
    """Tells functions apart that the same lines made, by what they enclose: rules by name, edited or not, and values.

    Nothing for a function that encloses nothing.
    """
    names = [_enclosed_name(cell, [function]) for cell in function.__closure__ or ()]
    return f"-{hashlib.sha256(repr(names).encode()).hexdigest()[:16]}" if names else ""


def _enclosed_name(cell: types.CellType, around: list[types.FunctionType]) -> tuple[Any, ...]:
    try:
        value = cell.cell_contents
    except ValueError:  # not bound yet
        return ()
    if not isinstance(value, Dispatcher):
        try:
            return _Walk().described(value)
        except UnseenError:
            return (type(value).__qualname__,)
    rule = value.py_func
    place = rule.__code__.co_filename if rule.__module__ == "__main__" else rule.__module__
    inside = [] if rule in around else [_enclosed_name(each, [*around, rule]) for each in rule.__closure__ or ()]
    return (place, rule.__qualname__, inside)


@functools.cache
def _compiler() -> list[str]:
    return [hashlib.sha256(pkgutil.get_data(__package__, name) or b"").hexdigest() for name in _COMPILER]


class _Walk:
    """Describes values and functions by nested tuples that are the same in every process."""

    def __init__(self) -> None:
        self._met: dict[types.FunctionType, int] = {}  # a function that is met again is told by its number
        self._functions_told = 0

    def described(self, value: Any) -> tuple[Any, ...]:
        """All that machine code may take over from a value."""
        if isinstance(value, Dispatcher):
            options = sorted((name, _option(option)) for name, option in value.targetoptions.items())
            return ("compiled", options, self._function(value.py_func))
        if isinstance(value, _Intrinsic):
            return ("intrinsic", self._maker(inspect.unwrap(value)))
        if isinstance(value, enum.Enum):
            return ("member", self.described(type(value)), value.name)
        if type(value) in _PLAIN:
            return (type(value).__name__, repr(value))
        if isinstance(value, tuple | list):
            kind = self.described(type(value)) if hasattr(value, "_fields") else type(value).__name__
            return (kind, *(self.described(item) for item in value))
        if isinstance(value, set | frozenset):
            return (type(value).__name__, sorted(repr(self.described(item)) for item in value))
        if isinstance(value, dict):
            return ("dict", *((self.described(key), self.described(item)) for key, item in value.items()))
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            return ("array", type(value).__name__, *self.described(value.dtype), *_layout(value), _digest(value))
        if isinstance(value, np.dtype):
            return ("dtype", repr(value), value.itemsize, value.alignment)
        return self._class(value) if isinstance(value, type) else self._known(value)

    def _class(self, value: type) -> tuple[Any, ...]:
        if issubclass(value, tuple) and hasattr(value, "_fields"):
            return ("fields", value.__qualname__, value._fields, self.described(getattr(value, "_field_defaults", {})))
        if issubclass(value, enum.Enum):
            return ("enum", value.__qualname__, *((member.name, self.described(member.value)) for member in value))
        if issubclass(value, BaseException):
            return ("error", value.__module__, value.__qualname__)
        return self._known(value)

    def _known(self, value: Any) -> tuple[Any, ...]:
        """What belongs to Python, NumPy or Numba is told by its name: their versions are in the stamp."""
        origin: Any = inspect.unwrap(value) if callable(value) else value
        module = getattr(origin, "__module__", None) or type(origin).__module__
        if module.split(".")[0] not in _KNOWN or isinstance(value, types.ModuleType):
            raise UnseenError(f"{getattr(value, '__qualname__', repr(value))} of {module}")
        return ("known", module, getattr(value, "__qualname__", None) or getattr(value, "__name__", repr(value)))

    def _function(self, function: types.FunctionType) -> tuple[Any, ...]:
        self._functions_told += 1
        if function in self._met:
            return ("again", self._met[function])
        self._met[function] = len(self._met)
        _expect_unchanged(function, None, _text(function.__code__))
        reached = [self._reached(function, lookup) for lookup in _lookups(function.__code__)]
        defaults = self.described((function.__defaults__, function.__kwdefaults__))
        return ("function", _text(function.__code__), defaults, reached)

    def _maker(self, function: Any) -> tuple[Any, ...]:
        """A function that makes code for the compiler, with the functions and numbers beside it that it names."""
        self._functions_told += 1
        if function in self._met:
            return ("again", self._met[function])
        self._met[function] = len(self._met)
        named = [(str(lookup), _found(function, lookup)) for lookup in _lookups(function.__code__)]
        numbers = [(name, repr(value)) for name, value in named if type(value) in _PLAIN]
        functions = [
            (name, self._maker(value))
            for name, value in named
            if isinstance(value, types.FunctionType) and value.__module__ == function.__module__
        ]
        return (_text(function.__code__), numbers, functions)

    def _reached(self, function: types.FunctionType, lookup: Lookup) -> tuple[Any, ...]:
        value, told_before = _found(function, lookup), self._functions_told
        if value is _MISSING:
            return ("missing", str(lookup))  # the compiler says so better than we could
        description = self.described(value)
        is_constant = self._functions_told == told_before
        _expect_unchanged(function, lookup, description if is_constant else value)
        return (str(lookup), description)


def _found(function: types.FunctionType, lookup: Lookup) -> Any:
    """What a look-up leads to, past modules. Attributes of anything else are part of its value."""
    value = _named(function, lookup.name)
    for attribute in lookup.attributes:
        if not isinstance(value, types.ModuleType):
            break
        value = getattr(value, attribute, _MISSING)
    return value


def _named(function: types.FunctionType, name: str) -> Any:
    if name not in function.__code__.co_freevars:
        return function.__globals__.get(name, vars(builtins).get(name, _MISSING))
    try:
        return (function.__closure__ or ())[function.__code__.co_freevars.index(name)].cell_contents
    except ValueError:  # not bound yet
        return _MISSING


_first_seen: WeakKeyDictionary[types.FunctionType, dict[Lookup | None, object]] = WeakKeyDictionary()


def _expect_unchanged(function: types.FunctionType, lookup: Lookup | None, now: object) -> None:
    """Raises if a part of a kernel changed while this process runs: some of its machine code is older than the rest."""
    if _first_seen.setdefault(function, {}).setdefault(lookup, now) != now:
        what = f"{lookup} in {function.__qualname__}" if lookup else function.__qualname__
        raise UnseenError(f"{what}, which changed after it was first compiled")


@functools.cache
def _text(code: types.CodeType) -> tuple[Any, ...]:
    """The code itself, without its docstring and comments and wherever it stands."""
    takes = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars)
    return (code.co_qualname, takes, names, code.co_exceptiontable, [_step(step, code) for step in _steps(code)])


def _step(step: dis.Instruction, code: types.CodeType) -> tuple[Any, ...]:
    if step.opcode not in dis.hasconst or step.arg is None:
        return (step.opcode, step.arg)
    constant = code.co_consts[step.arg]
    return (step.opcode, _text(constant) if isinstance(constant, types.CodeType) else _Walk().described(constant))


@functools.cache
def _steps(code: types.CodeType) -> list[dis.Instruction]:
    return [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]


@functools.cache
def _lookups(code: types.CodeType) -> list[Lookup]:
    """Every name from outside that the code looks up, in order, and those of functions written inside it."""
    steps = _steps(code)
    lookups = [Lookup(step.argval, tuple(_attributes(steps, at + 1))) for at, step in enumerate(steps) if _names(step)]
    for inside in code.co_consts:
        lookups += _lookups(inside) if isinstance(inside, types.CodeType) else []
    return list(dict.fromkeys(lookup for lookup in lookups if lookup.name not in code.co_cellvars))


def _names(step: dis.Instruction) -> bool:
    """Whether a step looks up a global or a variable of a closure."""
    if step.opname == "IMPORT_NAME":
        raise UnseenError(f"an import of {step.argval} inside it")
    is_load = step.opname.startswith("LOAD_") and step.opname not in _ATTRIBUTES
    return is_load and (step.opcode in dis.hasname or step.opcode in dis.hasfree)


def _attributes(steps: list[dis.Instruction], at: int) -> Iterator[str]:
    while at < len(steps) and steps[at].opname in _ATTRIBUTES:
        yield steps[at].argval
        at += 1


def _option(option: Any) -> str:
    """An option of the compiler; a class among them is told by its name, an instance could not be compared."""
    if isinstance(option, set | frozenset):  # the order of a set differs from process to process
        return repr(sorted(option))
    return option.__qualname__ if isinstance(option, type) else repr(option)


def _layout(array: np.ndarray | np.generic) -> tuple[Any, ...]:
    return array.shape, array.strides


def _digest(array: np.ndarray | np.generic) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()
