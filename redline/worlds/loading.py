"""Objects named on the command line: `package.module:name`, looked for in the working directory too."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from redline.errors import RedlineError, unknown


def load_object(path: str, form: str, kind: type | None = None) -> Any:
    """The object that `package.module:name` names; the name may have dots.

    `form` is how a right name is written, and `kind` what it should lead to: anything that can be called, if None.
    """
    if not names_object(path):
        raise RedlineError(f"{path!r} does not name anything. Write {form}.")
    module_name, _, attribute = path.partition(":")
    found: Any = import_file(module_name) if _is_file(module_name) else import_module(module_name)
    where = module_name
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise _no_such_name(where, name, found, kind)
        found, where = getattr(found, name), f"{where}.{name}"
    return found


def names_object(path: str) -> bool:
    """Whether a text has the form `package.module:name` or `path/to/file.py:name`."""
    module_name, _, attribute = path.partition(":")
    return (_is_file(module_name) or _is_dotted_name(module_name)) and _is_dotted_name(attribute)


def _is_file(text: str) -> bool:
    return text.endswith(".py")


def import_file(place: str) -> ModuleType:
    """The module in a file, imported once; what stands beside the file can be imported by it."""
    file = Path(place).expanduser().resolve()
    known = next((module for module in list(sys.modules.values()) if _comes_from(module, file)), None)
    if known is not None:
        return known
    if not file.is_file():
        raise RedlineError(f"There is no file {place}. Write the path from here ({os.getcwd()}), or the whole one.")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_{abs(hash(file))}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RedlineError(f"The file {place} cannot be imported: {_in_one_line(error)}.") from error
    return module


def _comes_from(module: ModuleType, file: Path) -> bool:
    return getattr(module, "__file__", None) == str(file) and module.__name__ != "__main__"


def import_module(name: str) -> ModuleType:
    """The module of that name, or one line that says why there is none."""
    directory = os.getcwd()
    if directory not in sys.path and "" not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()  # the file may have been written a moment ago
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise RedlineError(
                f"There is no module {error.name!r}, neither in the working directory ({directory}) nor among the "
                "installed packages. Start Redline in the directory that holds it, or install it."
            ) from error
        raise RedlineError(f"The module {name!r} cannot be imported: {_in_one_line(error)}.") from error


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _in_one_line(error: BaseException) -> str:
    """Type, message and place of an error."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message} ({frames[-1].filename}:{frames[-1].lineno})"


def _no_such_name(where: str, name: str, owner: Any, kind: type | None) -> RedlineError:
    found = {known: getattr(owner, known, None) for known in dir(owner) if not known.startswith("_")}
    what, other = ("factory", "that could be called") if kind is None else (kind.__name__, "of that kind")
    fits = [known for known, value in found.items() if (callable(value) if kind is None else isinstance(value, kind))]
    if not fits:
        return RedlineError(f"There is no {where} {what} {name!r}, nor anything else {other}.")
    return unknown(f"{where} {what}", name, fits)
