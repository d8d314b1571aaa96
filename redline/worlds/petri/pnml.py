"""Nets from PNML files (ISO/IEC 15909-2, place/transition nets).

PNML knows no time. Durations come from a side file `<net>.timing.json` (transition id: duration), from our own
`toolspecific` blocks, or from a default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from redline.errors import RedlineError, unknown
from redline.files import plain_file
from redline.worlds.petri.numbers import at_least, whole_number
from redline.worlds.petri.rules.net import NEXT, Net, NetRules, Place, Transition, check_known

TOOL = "redline"
PTNET = "http://www.pnml.org/version-2009/grammar/ptnet"
TYPES = ("ptnet", "ptnetb", "pnmlcoremodel")
"""Last part of the net types that are place/transition nets; ProM and pm4py write the latter two."""
STEPS = 1000


@dataclass(frozen=True)
class PnmlNet:
    """The options of a net from a PNML file."""

    path: str
    """The file."""
    timing: str = ""
    """Side file with durations; `<net>.timing.json` by default, if it exists."""
    default_duration: int = 0
    """Duration of transitions that no one gives one."""
    goal: str = ""
    """Tokens wanted, e.g. `Unit:3,Press:1`; a net without one can be looked at, but not trained on."""
    horizon: int = 0
    """Time limit; 0 is none."""
    max_steps: int = STEPS
    """Steps in an episode; 0 is no limit."""
    skip_forced_waits: bool = True
    """Go on by itself while nothing can be done."""
    layout: str = "places"
    """Observation: places, or graph (a matrix [places, 15] row after row; the env has its arcs)."""
    observe_clock: bool = False
    """Add the clock to the observation; needs a horizon."""


def build_pnml(options: PnmlNet) -> Net:
    """The net of a PNML file, as its options say."""
    path = Path(options.path)
    durations = _timing(path, options.timing)
    goal = _goal(options.goal)
    limits = {"horizon": options.horizon or None, "max_steps": options.max_steps or None}
    check_known("observation layout", options.layout, ("places", "graph"))
    rules = NetRules(
        (NEXT,), skip_forced_waits=options.skip_forced_waits, layout=options.layout, observe_clock=options.observe_clock
    )
    return read_pnml(_text(path), path.stem, durations, options.default_duration, goal=goal, rules=rules, **limits)


def _text(path: Path) -> str:
    try:
        return plain_file(path).read_text()
    except FileNotFoundError:
        raise RedlineError(f"There is no PNML file at {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RedlineError(f"{path} cannot be read: {error}") from error


def _timing(path: Path, given: str) -> dict[str, int]:
    side = Path(given) if given else path.with_suffix(".timing.json")
    if not given and not side.exists():
        return {}
    try:
        data = json.loads(plain_file(side).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise RedlineError(f"The timing file {side} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise RedlineError(f'The timing file {side} must map transitions to durations. Try {{"t1": 5}}.')
    for transition, duration in data.items():
        if type(duration) is not int or duration < 0:
            raise RedlineError(
                f"The timing file {side}: {transition} is {json.dumps(duration)}, but takes a whole duration of 0 or more. "
                f'Try "{transition}": 5.'
            )
    return data


def _goal(text: str) -> dict[str, int]:
    """A goal written as `place:count,place:count`."""
    goal = {}
    for part in filter(None, text.split(",")):
        place, _, count = part.rpartition(":")
        number = at_least(0, count)
        if not place or number is None:
            raise RedlineError(f"The goal {text!r} makes no sense. Try goal=Unit:3 (place:tokens, joined by commas).")
        goal[place.strip()] = number
    return goal


@dataclass
class _Nodes:
    """The nodes and arcs of a file, by id."""

    places: dict[str, Place] = field(default_factory=dict)
    transitions: dict[str, Transition] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    arcs: list[tuple[str, str, str, int]] = field(default_factory=list)


def read_pnml(
    text: str,
    name: str,
    durations: dict[str, int] | None = None,
    default_duration: int = 0,
    **net: Any,
) -> Net:
    """The net written in PNML text. Nodes are named by their ids; whatever else a `Net` takes is passed on."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise RedlineError(f"{name!r} is not PNML: {error}. Is the file complete?") from error
    nodes = _Nodes()
    _read_page(_net_of(root, name), nodes, name)
    _link(nodes, name)
    durations = durations or {}
    stranger = next((key for key in durations if key not in nodes.transitions), None)
    if stranger is not None:
        raise unknown(f"transition in {name!r} for the duration of", stranger, nodes.transitions)
    transitions = [
        replace(each, duration=durations.get(each.name, each.duration if each.duration >= 0 else default_duration))
        for each in nodes.transitions.values()
    ]
    return Net(name, tuple(nodes.places.values()), tuple(transitions), **net)


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _children(element: ElementTree.Element, tag: str) -> Iterator[ElementTree.Element]:
    return (child for child in element if _tag(child) == tag)


def _net_of(root: ElementTree.Element, name: str) -> ElementTree.Element:
    nets = [root] if _tag(root) == "net" else list(_children(root, "net"))
    if not nets:
        raise RedlineError(f"{name!r} holds no net: there is no <net> in it.")
    kind = nets[0].get("type", PTNET)
    if kind.rpartition("/")[2].lower() not in TYPES:
        raise RedlineError(f"{name!r} is a net of type {kind}. Only place/transition nets can be played ({PTNET}).")
    return nets[0]


def _read_page(page: ElementTree.Element, nodes: _Nodes, name: str) -> None:
    """Collect the nodes of a page and of the pages in it."""
    for element in _within(page):
        tag = _tag(element)
        if tag == "place":
            nodes.places[_id(element, nodes, name)] = _read_place(element, name)
        elif tag == "transition":
            nodes.transitions[_id(element, nodes, name)] = _read_transition(element)
        elif tag in ("referencePlace", "referenceTransition"):
            nodes.references[_id(element, nodes, name)] = element.get("ref", "")
        elif tag == "arc":
            nodes.arcs.append(_read_arc(element, name))


def _within(page: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Everything on a page and on the pages in it, in order, however deep they are nested."""
    pages = [iter(page)]
    while pages:
        element = next(pages[-1], None)
        if element is None:
            pages.pop()
        elif _tag(element) == "page":
            pages.append(iter(element))
        else:
            yield element


def _id(element: ElementTree.Element, nodes: _Nodes, name: str) -> str:
    key = element.get("id")
    if not key:
        raise RedlineError(f"{name!r} has a {_tag(element)} without an id.")
    if key in nodes.places or key in nodes.transitions or key in nodes.references:
        raise RedlineError(f"{name!r} has two nodes with the id {key!r}. Ids must be unique.")
    return key


def _number(element: ElementTree.Element, tag: str, default: int, name: str) -> int:
    """The whole number in `<tag><text>`."""
    label = next(_children(element, tag), None)
    text = None if label is None else next(_children(label, "text"), None)
    if text is None or not (text.text or "").strip():
        return default
    number = whole_number(str(text.text))
    if number is None:
        what = f"{_tag(element)} {element.get('id')!r}"
        raise RedlineError(f"{name!r} gives {text.text!r} as {tag} of {what}. Only whole numbers will do.")
    return number


def _ours(element: ElementTree.Element) -> dict[str, str]:
    """The labels in our own toolspecific block of a node."""
    blocks = (block for block in _children(element, "toolspecific") if block.get("tool") == TOOL)
    return {_tag(part): (part.text or "").strip() for block in blocks for part in block}


def _our_number(ours: dict[str, str], key: str, default: Any, element: ElementTree.Element) -> Any:
    if key not in ours:
        return default
    number = whole_number(ours[key])
    if number is None:
        raise RedlineError(
            f"{_tag(element)} {element.get('id')!r} has {ours[key]!r} as {key}. Only whole numbers will do."
        )
    return number


def _read_place(element: ElementTree.Element, name: str) -> Place:
    ours = _ours(element)
    return Place(
        str(element.get("id")),
        _number(element, "initialMarking", 0, name),
        _our_number(ours, "capacity", None, element),
        _our_number(ours, "minStay", 0, element),
        _our_number(ours, "maxStay", None, element),
        ours.get("onOverstay", "fail"),
    )


def _read_transition(element: ElementTree.Element) -> Transition:
    """A transition without its arcs; a duration of -1 says that the file gives none."""
    ours = _ours(element)
    return Transition(
        str(element.get("id")), (), (), _our_number(ours, "duration", -1, element), ours.get("resource"),
        ours.get("controllable", "true") == "true", _our_number(ours, "priority", 0, element),
    )  # fmt: skip


def _read_arc(element: ElementTree.Element, name: str) -> tuple[str, str, str, int]:
    kind = next((part.get("value", "") for part in _children(element, "type")), "normal")
    if kind not in ("normal", ""):
        raise RedlineError(f"{name!r} has an arc of type {kind}. Only normal arcs can be played.")
    ends = element.get("source", ""), element.get("target", "")
    return (str(element.get("id")), *ends, _number(element, "inscription", 1, name))


def _link(nodes: _Nodes, name: str) -> None:
    """Give transitions their arcs; several between the same nodes count as one."""
    inputs: dict[str, dict[str, int]] = {key: {} for key in nodes.transitions}
    outputs: dict[str, dict[str, int]] = {key: {} for key in nodes.transitions}
    for arc, *ends, weight in nodes.arcs:
        source, target = (_resolve(nodes, end, arc, name) for end in ends)
        if weight < 1:
            raise RedlineError(
                f"The arc {arc!r} of {name!r} from {source!r} to {target!r} weighs {weight}: give it 1 or more."
            )
        if source in nodes.places and target in nodes.transitions:
            inputs[target][source] = inputs[target].get(source, 0) + weight
        elif source in nodes.transitions and target in nodes.places:
            outputs[source][target] = outputs[source].get(target, 0) + weight
        else:
            raise RedlineError(
                f"The arc {arc!r} of {name!r} must join a place and a transition, not {source!r} and {target!r}."
            )
    for key, transition in nodes.transitions.items():
        arcs = tuple(inputs[key].items()), tuple(outputs[key].items())
        nodes.transitions[key] = replace(transition, inputs=arcs[0], outputs=arcs[1])


def _resolve(nodes: _Nodes, end: str, arc: str, name: str) -> str:
    """The node an arc's end means, through any references."""
    seen = set()
    while end in nodes.references and end not in seen:
        seen.add(end)
        end = nodes.references[end]
    if end not in nodes.places and end not in nodes.transitions:
        raise unknown(f"node for the arc {arc!r} of {name!r}:", end, [*nodes.places, *nodes.transitions])
    return end
