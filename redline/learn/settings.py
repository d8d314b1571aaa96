"""Settings by name, from Python: those of a run, and beside them the options of its env."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from redline.errors import RedlineError, unknown
from redline.learn.config import Saving, TrainConfig
from redline.worlds.registry import world_of

T = TypeVar("T")
ALIASES = {"lr": "learning_rate", "total_timesteps": "total_steps"}
"""Names that others have for a setting of ours."""
_NOT_SETTINGS = ("env", "env_options")
_ALIKE = 0.85  # how much an option of an env may look like a setting before we ask


class Keywords(typing.NamedTuple):
    """Keywords, told apart."""

    training: dict[str, Any]
    saving: dict[str, Any]
    env_options: dict[str, Any]


def sort_settings(env: str, given: Mapping[str, Any]) -> Keywords:
    """What was given for training, for the run folder, and for the env itself; names that nobody has are refused."""
    training, saving = setting_names(TrainConfig), setting_names(Saving)
    found = Keywords({}, {}, {})
    for name, value in given.items():
        known = ALIASES.get(name, name)
        if known in training:
            found.training[known] = value
        elif known in saving:
            found.saving[known] = value
        else:
            found.env_options[name] = value
    _require_env_options(env, found.env_options, [*training, *saving])
    return found


def _require_env_options(env: str, options: Mapping[str, Any], settings: list[str]) -> None:
    world = world_of(env)
    if world.options is not None:
        own = [field.name for field in dataclasses.fields(world.options)]
        for name in options:
            if name not in own:
                raise unknown(f"setting, or option of {world.name},", name, [*own, *settings])
        return
    for name in options:
        alike = difflib.get_close_matches(name, settings, n=1, cutoff=_ALIKE)
        if alike:
            raise RedlineError(
                f"There is no setting {name!r}. Did you mean {alike[0]!r}? An option of the env goes into env_options={{…}}."
            )


def setting_names(kind: type) -> list[str]:
    """The names of all settings in a dataclass and those nested in it."""
    names: list[str] = []
    for field, hint in _fields(kind):
        names += setting_names(hint) if isinstance(hint, type) and dataclasses.is_dataclass(hint) else [field]
    return [name for name in names if name not in _NOT_SETTINGS]


def with_settings(config: T, settings: Mapping[str, Any]) -> T:
    """A config with some of its settings changed, however deep they stand; values of another kind are refused."""
    changes: dict[str, Any] = {}
    for name, hint in _fields(type(config)):
        if dataclasses.is_dataclass(hint):
            changes[name] = with_settings(getattr(config, name), settings)
        elif name in settings:
            changes[name] = _checked(name, settings[name], hint)
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]


def _fields(kind: type) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]


def _checked(name: str, value: Any, hint: Any) -> Any:
    """A value as its setting wants it: 1e6 is a whole number, a list is a tuple."""
    kinds = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    for kind in kinds:
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if get_origin(kind) is tuple and isinstance(value, list):
            return tuple(value)
        if _is_a(value, kind):
            return value
    wanted = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    raise RedlineError(f"{name}={value!r} cannot be used: it takes {wanted}.")


def _is_a(value: Any, kind: Any) -> bool:
    origin = get_origin(kind) or kind
    if origin is typing.Literal:
        return value in get_args(kind)
    if not isinstance(origin, type):  # anything else is for the config itself to judge
        return True
    return isinstance(value, origin) and not (origin is int and isinstance(value, bool))
