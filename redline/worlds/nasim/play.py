"""A penetration test to be watched: subnets and their hosts, what the attacker knows of them and what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from redline.learn.watching import WatchedEpisode, WatchedStep
from redline.report.draw import Box, Drawing, Shape, Text
from redline.report.film import DESK, PHONE, Film, Frame, Key, Moment, Play, Scene, likeliest_of, title_of
from redline.worlds.nasim.rules.kernel import CONNECTION_ERROR, PERMISSION_ERROR, SUCCESS, UNDEFINED_ERROR
from redline.worlds.nasim.rules.scenario import INTERNET, NO_ACCESS, ROOT, USER, AttackScenario, Host
from redline.worlds.nasim.rules.tables import HOSTS_PER_WORD, tabulate

SCREENS = {DESK: 900, PHONE: 358}
"""Pixels that the map may take."""
CELL_WIDTH, CELL_HEIGHT, GAP, TOP, HEAD = 75, 40, 8, 34, 26
HOSTS_IN_ROW = 2
PANEL_WIDTH = HOSTS_IN_ROW * (CELL_WIDTH + GAP) + GAP
UNKNOWN, KNOWN = ("surface", 1.0), ("soft", 1.0)
HELD_LOOKS = {NO_ACCESS: KNOWN, USER: ("gold", 0.5), ROOT: ("red", 0.6)}
HELD_WORDS = {NO_ACCESS: "", USER: "user", ROOT: "root"}
RESULTS = {
    SUCCESS: "it works",
    CONNECTION_ERROR: "it fails: there is no connection to that host",
    PERMISSION_ERROR: "it fails: the attacker lacks the access for it",
    UNDEFINED_ERROR: "it fails by bad luck",
}
NOTHING_THERE = "it fails: that host does not run what it takes"
KEYS = (
    Key([Box(1, 2, 20, 14, "axis", outlined=True, radius=3)], "not discovered yet"),
    Key([Box(1, 2, 20, 14, *KNOWN, radius=3), Box(1, 2, 20, 14, "axis", outlined=True, radius=3)], "discovered"),
    Key([Box(1, 2, 20, 14, *HELD_LOOKS[USER], radius=3)], "held as user"),
    Key([Box(1, 2, 20, 14, *HELD_LOOKS[ROOT], radius=3)], "held as root"),
    Key([Box(2, 3, 18, 12, "blue", outlined=True, radius=4, line_width=3)], "target of the latest action"),
    Key([Text(11, 14, "★", "orange", 14, "middle")], "a goal: root on it wins"),
)


class AttackSeen(NamedTuple):
    """What is remembered of a test after a step."""

    network: AttackScenario
    discovered: int  # mask of subnets
    found: int  # mask of subnets discovered by the latest step
    access: tuple[int, ...]  # to every host
    missing: int  # goals not yet reached
    result: int
    gain: float


def note(env: gym.Env) -> AttackSeen:
    """What the attacker knows and holds."""
    batch = env.unwrapped.batch  # type: ignore[attr-defined]
    record, words = batch.state.envs[0], batch.state.access[0]
    hosts = range(len(batch.network.hosts))
    access = tuple(int(words[h // HOSTS_PER_WORD]) >> 2 * (h % HOSTS_PER_WORD) & 3 for h in hosts)
    masks = int(record.discovered), int(record.found)
    return AttackSeen(batch.network, *masks, access, int(record.missing), int(record.result), float(record.gain))


def film(episode: WatchedEpisode) -> Film:
    """The episode with its map."""
    held: list[AttackSeen] = [episode.start, *(step.note for step in episode.steps)]
    actions = tabulate(held[0].network, False).actions
    maps = [_Map(held[0].network, screen) for screen in SCREENS]
    frames = [_beginning(held[0], maps)]
    for t, step in enumerate(episode.steps):
        frames.append(_frame(episode, t, step, held[t : t + 2], actions[int(step.choice.action)], maps))
    scenes = [Scene(each.ground(), each.layers_named(), each.screen) for each in maps]
    return Film(title_of(episode), frames, scenes, list(_moments(held)), KEYS)


def _beginning(now: AttackSeen, maps: Sequence[_Map]) -> Frame:
    public = ", ".join(str(subnet) for subnet in sorted(now.network.public))
    facts = [("attacker", f"on the internet, which reaches subnet {public}"), ("goals", _goals(now.network))]
    return Frame("The beginning", facts, layers=_layers(now, -1, maps), text=_text(now, -1))


def _goals(network: AttackScenario) -> str:
    return "root on " + ", ".join(_name(address) for address in network.sensitive)


def _frame(
    episode: WatchedEpisode,
    t: int,
    step: WatchedStep,
    around: Sequence[AttackSeen],
    action: np.void,
    maps: Sequence[_Map],
) -> Frame:
    before, now = around
    target = int(action["host"])
    facts = [("action", episode.name_of(step.choice)), ("result", RESULTS.get(now.result, NOTHING_THERE))]
    if news := _news(before, now, target):
        facts.append(("gained", news))
    facts.append(("goals left", str(now.missing)))
    reasons = [("cost of the action", -float(action["cost"]))]
    if now.gain:
        reasons.append(("value of what was found" if now.found else f"root on {_at(now, target)}", now.gain))
    return Frame(
        f"Step {t + 1}", facts, step.reward, reasons, likeliest_of(episode, step), step.choice.value,
        _layers(now, target, maps), _text(now, target),
    )  # fmt: skip


def _news(before: AttackSeen, now: AttackSeen, target: int) -> str:
    """What the step has brought."""
    found = [str(subnet) for subnet in range(len(now.network.subnets)) if now.found >> subnet & 1]
    news = [f"discovered subnet {', '.join(found)}"] if found else []
    if now.access[target] != before.access[target]:
        news.append(f"{HELD_WORDS[now.access[target]]} access to {_at(now, target)}")
    return "; ".join(news)


def _name(address: tuple[int, int]) -> str:
    return f"{address[0]}.{address[1]}"


def _at(now: AttackSeen, host: int) -> str:
    return _name(now.network.hosts[host].address)


def _moments(held: Sequence[AttackSeen]) -> Iterator[Moment]:
    """The first foothold, subnets that were found, each goal."""
    goals = {h for h, host in enumerate(held[0].network.hosts) if host.address in held[0].network.sensitive}
    for t in range(1, len(held)):
        before, now = held[t - 1], held[t]
        gained = [h for h, access in enumerate(now.access) if access != before.access[h]]
        if gained and not any(before.access):
            yield Moment(t, f"first foothold ({_at(now, gained[0])})")
        if now.found:
            yield Moment(t, "subnets discovered")
        for h in gained:
            if h in goals and now.access[h] == ROOT:
                yield Moment(t, f"goal: root on {_at(now, h)}")


# The map


class _Map:
    """Where subnets and hosts stand on a screen: subnets that are nearer to the internet come first."""

    def __init__(self, network: AttackScenario, screen: str) -> None:
        self.network, self.screen = network, screen
        columns = max(1, int((SCREENS[screen] + GAP) // (PANEL_WIDTH + GAP)))
        self._corners: dict[int, tuple[float, float]] = {}
        y, order = float(TOP), _outside_in(network)
        for first in range(0, len(order), columns):
            row = order[first : first + columns]
            for k, subnet in enumerate(row):
                self._corners[subnet] = (k * (PANEL_WIDTH + GAP), y)
            y += max(map(self._height, row)) + GAP
        self.width = min(len(order), columns) * (PANEL_WIDTH + GAP) - GAP
        self.height = y

    def _height(self, subnet: int) -> float:
        return HEAD + 18 + -(-self.network.subnets[subnet] // HOSTS_IN_ROW) * (CELL_HEIGHT + GAP) + GAP / 2

    def ground(self) -> Drawing:
        """Subnets, and where one gets to from each."""
        shapes: list[Shape] = []
        for subnet, (x, y) in self._corners.items():
            ways = ", ".join(str(other) for other in sorted(self.network.linked(subnet) - {INTERNET, subnet}))
            leads = " and ".join(filter(None, ("the internet" * (subnet in self.network.public), ways)))
            frame = Box(x + 0.5, y + 0.5, PANEL_WIDTH - 1, self._height(subnet) - 1, "axis", outlined=True, radius=8)
            shapes += [frame, Text(x + GAP, y + 19, f"Subnet {subnet}", "ink", 13, weight=600)]
            linked = Text(x + GAP, y + 36, f"linked to {leads}", "muted", 11, room=PANEL_WIDTH - 2 * GAP)
            shapes += [linked] if leads else []
        return Drawing("The network", self.width, self.height, shapes)

    def layers_named(self) -> tuple[str, ...]:
        """A layer for each host."""
        return tuple(f"{self.screen} {_name(host.address)}" for host in self.network.hosts)

    def corner(self, host: Host) -> tuple[float, float]:
        """Where the box of a host begins."""
        subnet, number = host.address
        x, y = self._corners[subnet]
        row, column = divmod(number, HOSTS_IN_ROW)
        return x + GAP + column * (CELL_WIDTH + GAP), y + HEAD + 18 + row * (CELL_HEIGHT + GAP)


def _outside_in(network: AttackScenario) -> list[int]:
    """Subnets in the order in which an attacker can come to them."""
    order, seen = sorted(network.public), set(network.public)
    for subnet in order:  # which grows meanwhile
        new = sorted(network.linked(subnet) - seen - {INTERNET})
        order += new
        seen |= set(new)
    return order + [subnet for subnet in range(1, len(network.subnets)) if subnet not in seen]


def _layers(now: AttackSeen, target: int, maps: Sequence[_Map]) -> dict[str, list[Shape]]:
    return {
        f"{each.screen} {_name(host.address)}": _box(now, h, host, h == target, *each.corner(host))
        for each in maps
        for h, host in enumerate(now.network.hosts)
    }


def _box(now: AttackSeen, number: int, host: Host, targeted: bool, x: float, y: float) -> list[Shape]:
    known, access = now.discovered >> host.address[0] & 1, now.access[number]
    look = HELD_LOOKS[access] if known else UNKNOWN
    runs = ", ".join(sorted(host.services | host.processes)) or "nothing"
    tip = f"{_name(host.address)}: {host.os}, runs {runs}"
    shapes: list[Shape] = [
        Box(x, y, CELL_WIDTH, CELL_HEIGHT, *look, tip=tip, radius=6),
        Box(x, y, CELL_WIDTH, CELL_HEIGHT, "axis", outlined=True, radius=6),
        Text(x + 8, y + 17, _name(host.address), "ink" if known else "muted", 13, weight=600, inside=True),
        Text(x + 8, y + 33, HELD_WORDS[access], "ink", 12, inside=True),
    ]
    if host.address in now.network.sensitive:
        shapes.append(Text(x + CELL_WIDTH - 8, y + 18, "★", "orange", 14, "end", inside=True))
    if targeted:
        frame = Box(
            x - 2, y - 2, CELL_WIDTH + 4, CELL_HEIGHT + 4, "blue", outlined=True, radius=8, line_width=3
        )  # fmt: skip
        shapes.append(frame)
    return shapes


def _text(now: AttackSeen, target: int) -> list[str]:
    """The hosts as a table, for a terminal; those that are not discovered are only counted."""
    lines = [f"{'host':<8}{'held as':<9}{'goal':<6}runs"]
    hidden = 0
    for h, host in enumerate(now.network.hosts):
        if not now.discovered >> host.address[0] & 1:
            hidden += 1
            continue
        colour = {USER: "yellow", ROOT: "bold red"}.get(now.access[h])
        held = f"{HELD_WORDS[now.access[h]] or '·':<9}"
        goal = "★" if host.address in now.network.sensitive else ""
        runs = " ".join([host.os, *sorted(host.services | host.processes)])
        shown = f"[{colour}]{held}[/]" if colour else held
        lines.append(f"{'>' if h == target else ' '}{_name(host.address):<7}{shown}{goal:<6}{runs}")
    return [*lines, f" and {hidden} not discovered yet"] if hidden else lines


PLAY = Play(film, note)
