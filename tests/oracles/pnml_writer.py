"""Nets as PNML text: what `read_pnml` must read as the same net again."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape, quoteattr

from redline.worlds.petri.pnml import PTNET, TOOL
from redline.worlds.petri.rules.net import Net, Place, Transition

NAMESPACE = "http://www.pnml.org/version-2009/grammar/pnml"


def write_pnml(net: Net) -> str:
    """The net, which has no routes, as PNML text. Times and capacities go into our own blocks, which other tools skip."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<pnml xmlns="{NAMESPACE}">']
    lines += [f'  <net id={quoteattr(net.name)} type="{PTNET}">', '    <page id="page0">']
    lines += [_node("place", place.name, _place_parts(place)) for place in net.places]
    lines += [_node("transition", each.name, _block(_transition_labels(each))) for each in net.transitions]
    lines += _arc_lines(net)
    return "\n".join([*lines, "    </page>", "  </net>", "</pnml>"]) + "\n"


def _node(tag: str, key: str, parts: str) -> str:
    return f"      <{tag} id={quoteattr(key)}><name><text>{escape(key)}</text></name>{parts}</{tag}>"


def _place_parts(place: Place) -> str:
    marking = f"<initialMarking><text>{place.tokens}</text></initialMarking>" if place.tokens else ""
    labels: dict[str, Any] = {} if place.capacity is None else {"capacity": place.capacity}
    labels |= {"minStay": place.min_stay} if place.min_stay else {}
    labels |= {"maxStay": place.max_stay} if place.max_stay is not None else {}
    labels |= {"onOverstay": place.on_overstay} if place.on_overstay != "fail" else {}
    return marking + _block(labels)


def _transition_labels(transition: Transition) -> dict[str, Any]:
    labels: dict[str, Any] = {"duration": transition.duration}
    labels |= {"resource": transition.resource} if transition.resource is not None else {}
    labels |= {"controllable": "false"} if not transition.controllable else {}
    labels |= {"priority": transition.priority} if transition.priority else {}
    return labels


def _block(labels: dict[str, Any]) -> str:
    if not labels:
        return ""
    parts = "".join(f"<{key}>{escape(str(value))}</{key}>" for key, value in labels.items())
    return f'<toolspecific tool="{TOOL}" version="1">{parts}</toolspecific>'


def _arc_lines(net: Net) -> list[str]:
    ends = [(place, each.name, weight) for each in net.transitions for place, weight in each.inputs]
    ends += [(each.name, place, weight) for each in net.transitions for place, weight in each.outputs]
    return [
        f'      <arc id="a{k}" source={quoteattr(source)} target={quoteattr(target)}>'
        f"<inscription><text>{weight}</text></inscription></arc>"
        for k, (source, target, weight) in enumerate(ends)
    ]
