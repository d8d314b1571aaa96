"""Modes to compare: the same training with other settings, run in turns so that noise hits all alike."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from redline.engines import Collecting, Faults, engines_to_try
from redline.errors import RedlineError, unknown
from redline.learn.config import PPOConfig, TrainConfig
from redline.profiler.record import Profile, Watched
from redline.timing.compare import SpeedUp, Spread, speed_up
from redline.timing.rows import rows
from redline.timing.trace import Trace
from redline.worlds.naming import parse_value
from redline.worlds.registry import is_compiled, world_of

COMPARISONS = ("turbo", "engines", "dedup")
NESTED = ("ppo", "collecting", "faults", "env_options")
EXAMPLE = "A=engine:shared,B=engine:pool+workers:4"


@dataclass(frozen=True)
class RowComparison:
    """One row of two modes: microseconds per env step, and how much faster the second is."""

    name: str
    depth: int
    before: Spread
    after: Spread
    speed_up: SpeedUp


@dataclass
class ModeComparison:
    """Profiles that were recorded in turns; the first is what the others are compared with."""

    profiles: list[Profile]
    failed: dict[str, str]  # modes that cannot run here, and why

    def against_first(self, other: Profile) -> list[RowComparison]:
        """Row by row, and last the total."""
        first = self.profiles[0]
        before, after = per_step(first), per_step(other)
        names = {row.name: row.depth for profile in (first, other) for row in rows(profile.breakdown)}
        found = []
        for name, depth in {**names, "total": 0}.items():
            a, b = before.get(name), after.get(name)
            if a is None or b is None:  # only one of them has this row
                none = np.zeros(len(first.batches))
                a, b = none if a is None else a, none if b is None else b
            found.append(RowComparison(name, depth, Spread.of(a), Spread.of(b), speed_up(a, b)))
        return found

    def total(self, other: Profile) -> SpeedUp:
        """How much faster another mode is than the first, all in all."""
        return speed_up(per_step(self.profiles[0])["total"], per_step(other)["total"])


def per_step(profile: Profile) -> dict[str, np.ndarray]:
    """Microseconds per env step of every row and of the total, batch by batch."""
    found: dict[str, list[float]] = {}
    for batch in profile.batches:
        scale = 1e6 / batch.steps
        shown = {row.name: row.seconds for row in rows(batch.breakdown)}
        for name in {row.name for each in profile.batches for row in rows(each.breakdown)}:
            found.setdefault(name, []).append(shown.get(name, 0.0) * scale)
        found.setdefault("total", []).append(batch.breakdown.total_seconds * scale)
    return {name: np.array(values) for name, values in found.items()}


def record_in_turns(
    modes: Mapping[str, TrainConfig], batches: int, say: Callable[[str], None], trace: Trace | None = None
) -> ModeComparison:
    """A batch of each mode, then the next of each. A mode that cannot run is left out, with its reason."""
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        running: dict[str, Watched] = {}
        for mode, config in modes.items():
            say(f"Starting {mode} …")
            try:
                watched = Watched(mode, config, say, trace if not running else None)
            except RedlineError as error:
                failed[mode] = str(error).split("\n")[0]
                continue
            stack.callback(watched.close)
            running[mode] = watched
        if not running:
            raise RedlineError(f"No mode can run. {next(iter(failed.values()))}")
        for k in range(batches + 1):
            for mode, watched in running.items():
                say(f"{mode}: {'warm-up' if k == 0 else f'batch {k} of {batches}'}")
                watched.batch()
        if len(running) == 1:  # several share a process, and cannot be told apart
            next(iter(running.values())).weigh()
    return ModeComparison([watched.profile for watched in running.values()], failed)


def modes_of(what: str, config: TrainConfig) -> dict[str, TrainConfig]:
    """The modes that a comparison asks for; the first is the one the others are compared with."""
    if "=" in what:
        return _custom(what, config)
    if what == "turbo":
        if not is_compiled(config.env):
            raise RedlineError(
                f"{config.env} has no turbo: only our own simulators are compiled. Try --compare engines."
            )
        return {
            "turbo off": dataclasses.replace(config, turbo=False),
            "turbo on": dataclasses.replace(config, turbo=True),
        }
    if what == "dedup":
        return {"plain": dataclasses.replace(config, dedup=False), "dedup": dataclasses.replace(config, dedup=True)}
    if what == "engines":
        names = engines_to_try(config.collecting.ray_address)
        return {name: dataclasses.replace(config, engine=name) for name in names}
    raise unknown("comparison", what, [*COMPARISONS, EXAMPLE])


def _custom(what: str, config: TrainConfig) -> dict[str, TrainConfig]:
    modes = {}
    for part in re.split(r",(?=[^,:]+=)", what):
        name, equals, settings = part.partition("=")
        if not equals or not name or not settings:
            raise RedlineError(f"{part!r} is not a mode. Write --compare {EXAMPLE}.")
        modes[name] = changed(config, dict(_setting(each) for each in settings.split("+")))
    if len(modes) < 2:
        raise RedlineError(f"{what!r} is one mode, and a comparison needs two. Write --compare {EXAMPLE}.")
    return modes


def _setting(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name or not value:
        raise RedlineError(f"{text!r} is not a setting. Write it as engine:pool or workers:4.")
    return name.replace("-", "_"), value


def changed(config: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """A config with other settings, wherever in it they stand."""
    own, ppo, collecting, faults, options = (dict[str, Any]() for _ in range(5))
    places = ((TrainConfig, own), (PPOConfig, ppo), (Collecting, collecting), (Faults, faults))
    options_class = world_of(config.env).options
    env_fields = [] if options_class is None else [field.name for field in dataclasses.fields(options_class)]
    for name, value in settings.items():
        for kind, chosen in places:
            if name in kind.__dataclass_fields__ and name not in NESTED:
                chosen[name] = _as_type(kind, name, value)
                break
        else:
            if env_fields and name not in env_fields:
                ours = [each for kind, _ in places for each in kind.__dataclass_fields__ if each not in NESTED]
                raise unknown("setting", name, [*ours, *env_fields])
            options[name] = _parsed(value)
    mended = dataclasses.replace(config.collecting.faults, **faults)
    return dataclasses.replace(
        config, **own, ppo=dataclasses.replace(config.ppo, **ppo),
        collecting=dataclasses.replace(config.collecting, **collecting, faults=mended),
        env_options={**config.env_options, **options},
    )  # fmt: skip


def _as_type(kind: Any, name: str, value: Any) -> Any:
    parsed = _parsed(value)
    default = getattr(kind(), name)
    if isinstance(default, tuple):
        return tuple(parsed) if isinstance(parsed, list) else (parsed,)
    if isinstance(default, bool) and not isinstance(parsed, bool):
        raise RedlineError(f"{name}:{value} cannot work: it is true or false.")
    if isinstance(default, int | float) and not isinstance(default, bool) and not isinstance(parsed, int | float):
        raise RedlineError(f"{name}:{value} cannot work: it is a number. Try {name}:{default}.")
    return parsed


def _parsed(value: Any) -> Any:
    return parse_value(value) if isinstance(value, str) else value
