"""A cluster tool of one's own in one JSON file: robots, places, the routes of wafers. docs/petri.md describes it.

Whatever is wrong with a file is said with the field it is in and a value that would do. Keys that begin with // are for
people and are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from redline.errors import RedlineError, unknown
from redline.files import reason, replace_file
from redline.worlds.petri.cluster_tool import Device, Route, read_device, read_route

COMMENT = "//"
MOST = 10**9
"""The greatest number in a file."""


class FieldRule(NamedTuple):
    """What a field may hold."""

    holds: Callable[[Any], bool]
    what: str
    example: str
    needed: bool = False


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= MOST


def _is_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _is_counts(value: object) -> bool:
    return isinstance(value, list) and all(_is_whole(each) for each in value)


def _is_intervals(value: object) -> bool:
    return isinstance(value, list) and (_is_counts(value) or all(_is_counts(each) for each in value))


SECONDS = FieldRule(_is_whole, "whole seconds, 0 or more", "5")
CLEANING = FieldRule(lambda value: isinstance(value, dict), "an object", '{"after_wafers": 5, "duration": 150}')
KINDS = ("source", "sink", "process", "buffer")
TOOL = {
    "robots": FieldRule(lambda v: isinstance(v, dict) and bool(v), "robots by name", '{"TM1": {"reach": ["LP"]}}', True),
    "places": FieldRule(lambda v: isinstance(v, dict) and bool(v), "places by name", '{"LP": {"kind": "source"}}', True),
    "types": FieldRule(lambda v: isinstance(v, list) and bool(v), "a route a type", '[[{"at": ["PM1"], "p": 100}]]', True),
    "before": FieldRule(lambda v: v == [] or _is_names(v), "names of places", '["AL"]'),
    "after": FieldRule(lambda v: v == [] or _is_names(v), "names of places", '["CL"]'),
    "wip_limit": FieldRule(lambda v: v is None or _is_count(v), "a whole number, 1 or more", "7"),
    "release_intervals": FieldRule(_is_intervals, "seconds, or a list of them for each type", "[65]"),
    "release_order": FieldRule(lambda v: isinstance(v, list) and all(map(_is_count, v)), "types, counted from 1", "[1, 2]"),
}  # fmt: skip
ROBOT = {
    "reach": FieldRule(_is_names, "names of places", '["LP", "PM1", "LP_done"]', True),
    "pick": SECONDS, "travel": SECONDS, "place": SECONDS, "hold_limit": SECONDS._replace(example="20"),
    "priority": FieldRule(lambda v: type(v) is int and abs(v) <= MOST, "a whole number", "10"),
}  # fmt: skip
PLACE = {
    "kind": FieldRule(lambda v: v in KINDS, f"one of {', '.join(KINDS)}", '"process"', True),
    "capacity": FieldRule(lambda v: v is None or _is_count(v), "a whole number, 1 or more", "1"),
    "process_time": SECONDS._replace(example="30"),
    "residency_limit": FieldRule(lambda v: v is None or _is_whole(v), "whole seconds, or null for none", "15"),
    "release_gate": FieldRule(lambda v: isinstance(v, bool), "true or false", "true"),
    "cleaning": CLEANING,
    "loaded_by": FieldRule(_is_names, "names of robots", '["TM1"]'),
    "unloaded_by": FieldRule(_is_names, "names of robots", '["TM1"]'),
}
STAGE = {
    "at": FieldRule(_is_names, "names of places to choose from", '["PM1", "PM2"]', True),
    "p": FieldRule(_is_whole, "whole seconds of processing", "100", True),
    "clean": CLEANING,
}
CLEAN = {
    "after_wafers": FieldRule(_is_count, "a whole number of wafers, 1 or more", "5", True),
    "duration": FieldRule(_is_count, "whole seconds, 1 or more", "150", True),
}

TEMPLATE: dict[str, Any] = {
    "//": "A cluster tool. Keys that begin with // are for people. Times are whole seconds.",
    "robots": {
        "TM1": {
            "//": "reach: the places it gets to; a move takes pick + travel + place; a wafer may stay on its arm for "
            "hold_limit beyond that. Of several robots the one with the highest priority moves a wafer.",
            "reach": ["LP", "PM1", "PM2", "PM3", "LP_done"],
            "pick": 5, "travel": 5, "place": 5, "hold_limit": 20, "priority": 0,
        }
    },
    "places": {
        "// kinds": "one source, one sink, and any number of process and buffer places",
        "LP": {"kind": "source"},
        "LP_done": {"kind": "sink"},
        "PM1": {
            "//": "residency_limit: how long a finished wafer may wait there before it is scrapped (null: for ever)",
            "kind": "process", "capacity": 1, "residency_limit": 15,
        },
        "PM2": {"kind": "process", "capacity": 1, "residency_limit": 15},
        "PM3": {
            "//": "cleaning: with ?cleaning=on it is shut for `duration` after every `after_wafers`",
            "kind": "process", "capacity": 1, "residency_limit": 15, "cleaning": {"after_wafers": 5, "duration": 150},
        },
    },
    "// types": "a route for each type of wafer: stages in order; `at` lists chambers to choose from, p is processing",
    "types": [[{"at": ["PM1", "PM2"], "p": 100}, {"at": ["PM3"], "p": 60}]],
    "// release": "types in the order in which they enter, over and over; most wafers inside with ?wip_limit=route",
    "release_order": [1],
    "wip_limit": 4,
}  # fmt: skip


def write_template(path: Path) -> None:
    """Write a tool to start from, with a word about every field; a file that is there is left alone."""
    if path.suffix != ".json":
        raise RedlineError(
            f"A tool is described in a .json file, not in {path.name!r}. Try --template {path.stem}.json."
        )
    if path.exists():
        raise RedlineError(f"{path} exists already. Name another file: --template my-{path.name}")
    try:
        replace_file(path, (json.dumps(TEMPLATE, indent=2) + "\n").encode())
    except OSError as error:
        raise RedlineError(f"{path} cannot be written: {reason(error)}.") from error


def read_tool(name: str, described: Mapping[str, Any]) -> tuple[Route, Device]:
    """The route and the device that a description holds, every field of it checked."""
    data = without_comments(described)
    _check(name, "", data, TOOL)
    for robot, each in data["robots"].items():
        _check(name, f"robots.{robot}", each, ROBOT)
    for place, each in data["places"].items():
        _check(name, f"places.{place}", each, PLACE)
        if each.get("cleaning"):
            _check(name, f"places.{place}.cleaning", each["cleaning"], CLEAN)
    _check_kinds(name, data["places"])
    for k, stages in enumerate(data["types"]):
        _check_stages(name, f"types[{k}]", stages)
    _check_references(name, data)
    device = read_device(name, {key: data[key] for key in ("robots", "places", "before", "after") if key in data})
    return read_route(name, {**data, "device": name}), device


ALONE = {key: rule for key, rule in TOOL.items() if key not in ("robots", "places", "before", "after")}
ALONE["device"] = FieldRule(lambda value: isinstance(value, str), "the name of a device", '"single"')


def read_alone(name: str, described: Any) -> Route:
    """A route without a device of its own, every field of it checked."""
    data = without_comments(described)
    _check(name, "", data, ALONE)
    for k, stages in enumerate(data["types"]):
        _check_stages(name, f"types[{k}]", stages)
    return read_route(name, data)


def without_comments(value: Any) -> Any:
    """The same data without what is for people."""
    if isinstance(value, dict):
        return {key: without_comments(each) for key, each in value.items() if not key.startswith(COMMENT)}
    return [without_comments(each) for each in value] if isinstance(value, list) else value


def _check(name: str, where: str, data: Any, rules: Mapping[str, FieldRule]) -> None:
    """Refuse fields that are missing, unknown or of the wrong kind."""
    at = f"{where}." if where else ""
    if not isinstance(data, dict):
        hint = "" if where else f" Write one to start from: redline envs petri --template my-{name}.json"
        raise RedlineError(f"{name}: {where or 'the file'} holds {_shown(data)}, but an object is needed there.{hint}")
    for field in data:
        if field not in rules:
            raise unknown(f"field of {name}:", f"{at}{field}", [f"{at}{known}" for known in rules])
    for field, rule in rules.items():
        if field not in data and rule.needed:
            raise RedlineError(f'{name}: {at}{field} is missing. Try "{field}": {rule.example}.')
        if field in data and not rule.holds(data[field]):
            raise RedlineError(
                f'{name}: {at}{field} is {_shown(data[field])}, but takes {rule.what}. Try "{field}": {rule.example}.'
            )


def _check_kinds(name: str, places: Mapping[str, Mapping[str, Any]]) -> None:
    for kind in ("source", "sink"):
        found = [place for place, each in places.items() if each["kind"] == kind]
        if len(found) != 1:
            example = {"source": "LP", "sink": "LP_done"}[kind]
            raise RedlineError(
                f'{name}: places has {len(found)} of kind {kind}, and a tool has one. Try "{example}": {{"kind": "{kind}"}}.'
            )


def _check_stages(name: str, where: str, stages: Any) -> None:
    if not isinstance(stages, list) or not stages:
        raise RedlineError(f'{name}: {where} holds no stages. Try [{{"at": ["PM1"], "p": 100}}].')
    for k, stage in enumerate(stages):
        _check(name, f"{where}[{k}]", stage, STAGE)
        if stage.get("clean"):
            _check(name, f"{where}[{k}].clean", stage["clean"], CLEAN)


def _check_references(name: str, data: Mapping[str, Any]) -> None:
    """Refuse names of places and robots that there are not."""
    for place, each in data["places"].items():
        for side in ("loaded_by", "unloaded_by"):
            for robot in each.get(side, []):
                if robot not in data["robots"]:
                    raise unknown(f"robot in {name}: places.{place}.{side}:", robot, data["robots"])
    lists: dict[str, Sequence[str]] = {f"robots.{key}.reach": each["reach"] for key, each in data["robots"].items()}
    lists |= {side: data.get(side, []) for side in ("before", "after")}
    for k, stages in enumerate(data["types"]):
        lists |= {f"types[{k}][{n}].at": stage["at"] for n, stage in enumerate(stages)}
    for where, named in lists.items():
        for place in named:
            if place not in data["places"]:
                raise unknown(f"place in {name}: {where}:", place, data["places"])


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}…"
