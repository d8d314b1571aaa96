"""A CAGE-4 episode to be watched: nine zones as they are, beside what Blue's monitors tell, step by step."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.learn.team_watching import TeamPlayer
from redline.learn.watching import Move, WatchedEpisode, WatchedStep
from redline.report.draw import Box, Circle, Drawing, Shape, Text
from redline.report.film import Film, Frame, Key, Likely, Moment, Play, Scene, title_of
from redline.worlds.batch import Infos
from redline.worlds.cage4.baselines import BASELINES, FACES_OF, make_baseline
from redline.worlds.cage4.env import Cage4VectorEnv
from redline.worlds.cage4.naming import host_name
from redline.worlds.cage4.remembering import EnterpriseMemory
from redline.worlds.cage4.rules.scenario import (
    AD,
    ALLOW,
    BLOCK,
    BLUE_AGENTS,
    BLUE_KINDS,
    BLUE_OWNER,
    CN,
    IMPACT,
    IN,
    MONITOR,
    MOST_SERVERS,
    NOBODY,
    NUM_BLUE,
    NUM_RED,
    NUM_ZONES,
    OA,
    OB,
    OF,
    PA,
    RA,
    RB,
    RED_KINDS,
    ROUTER,
    SLEEP,
)
from redline.worlds.cage4.truth import EnterpriseTruth

SHORT = ("RA", "OA", "RB", "OB", "CN", "PA", "AD", "OF", "IN")
TITLES = (
    "Restricted zone A", "Operational zone A", "Restricted zone B", "Operational zone B", "Contractors", "Public access",
    "Admin network", "Office network", "Internet",
)  # fmt: skip
ROWS = ((CN, IN), (RA, RB), (OA, OB), (PA, AD), (OF,))
"""Zones as they stand in the picture: the way Red takes leads down."""
ACCESS = ("", "Red is a user", "Red is root")
ACCESS_LOOKS = (("soft", 1.0), ("gold", 0.75), ("red", 0.8))
ALARM_LOOKS = {
    (True, True): ("process and traffic", "red", 0.8),
    (True, False): ("process", "orange", 0.8),
    (False, True): ("traffic", "sky", 0.8),
    (False, False): ("nothing noticed", "soft", 1.0),
}
SIDE, CELL, PANEL_WIDTH, PANEL_HEIGHT, GAP, TOP = 15, 18, 194, 92, 10, 34
WIDTH = 2 * PANEL_WIDTH + GAP
TRUTH, SEEN = "truth", "seen"
VIEWS = {TRUTH: "As it is: Red's access", SEEN: "What Blue's monitors tell"}
LEGEND = "A square is a host: servers in the upper row, users' hosts in the lower one."
PHASES = ("planning", "mission A", "mission B")


def _keys() -> tuple[Key, ...]:
    def square(colour: str, opacity: float = 1.0) -> list[Shape]:
        return _square(3, 1.5, colour, opacity, "", False)

    return (
        Key(square(*ACCESS_LOOKS[1]), "Red has user access"),
        Key(square(*ACCESS_LOOKS[2]), "Red has root access"),
        Key([*square("soft"), Box(3, 12.5, SIDE, 4, "orange")], "its services are degraded"),
        Key([*square("soft"), Circle(6.5, 5, 2, "green")], "decoys"),
        Key([*square("soft"), Circle(3 + SIDE / 2, 10, 3, "ink")], "Red has just acted here"),
        Key(_square(3, 1.5, "soft", 1.0, "", True), "Blue is working here"),
        Key(square(*ALARM_LOOKS[True, True][1:]), "alarm: process and traffic, as in a break-in (right)"),
        Key(square(*ALARM_LOOKS[True, False][1:]), "alarm: process"),
        Key(square(*ALARM_LOOKS[False, True][1:]), "alarm: traffic"),
    )


class Shown(NamedTuple):
    """What the film needs of an env after a step."""

    truth: EnterpriseTruth
    slots: np.ndarray  # int8 [137]
    blue: list[tuple[int, int, int, int]]  # of each defender: kind, host or zone, zone, steps left
    red: list[tuple[int, int]]  # of each Red agent: the kind of action that came due, and its host; -1 where none did
    shares: np.ndarray  # float32 [5]


def note(env: Cage4VectorEnv) -> Shown:
    """All there is to see."""
    record = env.state[0]
    blue = [
        (int(record.blue_kind[b]), int(record.blue_target[b]), int(record.blue_other[b]), int(record.blue_left[b]))
        for b in range(NUM_BLUE)
    ]
    red = [
        (int(record.due_kind[a]) if record.active[a] else -1, int(record.red_target[a])) for a in range(NUM_RED)
    ]  # fmt: skip
    return Shown(env.true_state(), record.host_slot.copy(), blue, red, env.shares[0].copy())


def film(episode: WatchedEpisode) -> Film:
    """The episode with both maps."""
    start: Shown = episode.start
    hosts = [h for h in range(int(start.truth.num_hosts[0])) if start.slots[h] != ROUTER]
    frames = [Frame("The beginning", [("Network", _size(start, hosts))], layers=_layers(start, hosts, False))]
    frames += [_frame(t, step, hosts) for t, step in enumerate(episode.steps)]
    scenes = [
        Scene(_ground(title), (*(f"{view} {h}" for h in hosts), *(f"{view} blocks {z}" for z in range(NUM_ZONES))))
        for view, title in VIEWS.items()
    ]
    moments = _moments([start, *(step.note for step in episode.steps)])
    return Film(title_of(episode), frames, scenes, moments, _keys(), LEGEND)


def _size(shown: Shown, hosts: Sequence[int]) -> str:
    users = sum(1 for h in hosts if shown.slots[h] >= MOST_SERVERS)
    return f"{users} users' hosts, {len(hosts) - users} servers; Red holds one of the contractors' hosts"


def _frame(t: int, step: WatchedStep, hosts: Sequence[int]) -> Frame:
    shown: Shown = step.note
    facts = [(agent, blue_words(shown, b)) for b, agent in enumerate(BLUE_AGENTS)]
    facts += [("Red", red_words(shown)), ("Alarms", alarm_words(shown)), ("Phase", PHASES[shown.truth.phase[0]])]
    likely = [Likely(f"{BLUE_AGENTS[b]}: {blue_words(shown, b)}", chance, True) for b, chance in step.choice.likeliest]
    return Frame(
        f"Step {t + 1}", facts, step.reward, reasons(shown, step.reward), likely, None, _layers(shown, hosts, True),
        _text(shown, hosts),
    )  # fmt: skip


# In words


def _name(shown: Shown, host: int) -> str:
    return _plain(int(shown.truth.host_zone[0, host]), int(shown.slots[host]))


def _plain(zone: int, slot: int) -> str:
    return host_name(zone, slot).replace("_subnet", "")


def blue_words(shown: Shown, b: int) -> str:
    """What a defender is at, or has just finished."""
    kind, target, zone, left = shown.blue[b]
    when = f", {left} more step{'s' if left > 1 else ''}" if left else ""
    if kind in (SLEEP, MONITOR):
        return BLUE_KINDS[kind]
    if kind in (ALLOW, BLOCK):
        return f"{BLUE_KINDS[kind]} {SHORT[zone]} ← {SHORT[target]}{when}"
    return f"{BLUE_KINDS[kind]} {_name(shown, target)}{when}"


def red_words(shown: Shown) -> str:
    """The actions of Red that came due."""
    return "; ".join(f"{a}: {_red_deed(shown, a)}" for a in range(NUM_RED) if shown.red[a][0] >= 0) or "nothing"


def _red_deed(shown: Shown, agent: int) -> str:
    kind, target = shown.red[agent]
    return RED_KINDS[kind] if kind == 0 else f"{RED_KINDS[kind]} {_name(shown, target)}"


def alarm_words(shown: Shown) -> str:
    """What the monitors of all defenders noticed in this step."""
    truth = shown.truth
    alarms = [("process", truth.creation[0]), ("traffic", truth.connection[0])]
    found = [(what, ", ".join(_name(shown, h) for h in np.flatnonzero(on).tolist())) for what, on in alarms if on.any()]
    return "; ".join(f"{what} on {hosts}" for what, hosts in found) or "none"


def reasons(shown: Shown, reward: float) -> list[tuple[str, float]]:
    """What a step cost, by who defends where it happened."""
    found = [(f"in the zones of {BLUE_AGENTS[b]}", float(points)) for b, points in enumerate(shown.shares) if points]
    rest = reward - float(shown.shares.sum())
    return [*found, ("among the contractors", rest)] if rest else found


def _moments(notes: Sequence[Shown]) -> list[Moment]:
    """The first root and the first Impact in each zone that Blue defends, and new phases."""
    found: list[Moment] = []
    rooted: set[int] = set()
    hit: set[int] = set()
    for t, shown in enumerate(notes[1:], start=1):
        if shown.truth.phase[0] != notes[t - 1].truth.phase[0]:
            found.append(Moment(t, PHASES[shown.truth.phase[0]]))
        zones = shown.truth.host_zone[0]
        for zone in {int(z) for z in zones[shown.truth.access[0] == 2]} - rooted - {CN}:
            rooted.add(zone)
            found.append(Moment(t, f"root in {TITLES[zone]}"))
        for zone in {int(zones[target]) for kind, target in shown.red if kind == IMPACT} - hit - {CN}:
            hit.add(zone)
            found.append(Moment(t, f"Impact in {TITLES[zone]}"))
    return found


# The maps


@functools.cache
def _corner(zone: int) -> tuple[float, float]:
    """Where the panel of a zone begins."""
    row, column = next((r, row.index(zone)) for r, row in enumerate(ROWS) if zone in row)
    return column * (PANEL_WIDTH + GAP), TOP + row * (PANEL_HEIGHT + GAP)


def _ground(title: str) -> Drawing:
    """Zones with their names and who defends them."""
    shapes: list[Shape] = []
    for zone in range(NUM_ZONES):
        (x, y), owner = _corner(zone), int(BLUE_OWNER[zone])
        frame = Box(x + 0.5, y + 0.5, PANEL_WIDTH - 1, PANEL_HEIGHT - 1, "axis", outlined=True, radius=8)
        words = TITLES[zone] if owner == NOBODY else f"{TITLES[zone]}, Blue {owner}"
        shapes += [frame, Text(x + 8, y + 17, words, "ink", 12, weight=600)]
    return Drawing(title, WIDTH, TOP + len(ROWS) * (PANEL_HEIGHT + GAP), shapes)


def _layers(shown: Shown, hosts: Sequence[int], played: bool) -> dict[str, Sequence[Shape]]:
    """A layer for each host and for each zone's blocks, in both views."""
    layers: dict[str, Sequence[Shape]] = {}
    worked_on = {target for kind, target, _, _ in shown.blue if kind not in (SLEEP, MONITOR, ALLOW, BLOCK)}
    attacked = {target for kind, target in shown.red if kind > 0}
    truth = shown.truth
    facts = zip(
        hosts, truth.host_zone[0, hosts].tolist(), shown.slots[hosts].tolist(), truth.access[0, hosts].tolist(),
        truth.reliability[0, hosts].tolist(), truth.decoys[0, hosts].tolist(), truth.ot_off[0, hosts].tolist(),
        truth.creation[0, hosts].tolist(), truth.connection[0, hosts].tolist(), strict=True,
    )  # fmt: skip
    for h, zone, slot, held, reliability, decoys, ot_off, created, touched in facts:
        framed, hit = played and h in worked_on, played and h in attacked
        layers[f"{TRUTH} {h}"] = _true_host(zone, slot, held, reliability, decoys, ot_off, framed, hit)
        layers[f"{SEEN} {h}"] = _seen_host(zone, slot, created, touched, framed)
    for zone in range(NUM_ZONES):
        blocked = [SHORT[z] for z in range(NUM_ZONES) if shown.truth.blocks[0, zone, z]]
        x, y = _corner(zone)
        words = f"nothing in from {' '.join(blocked)}" if blocked else ""
        for view in VIEWS:
            layers[f"{view} blocks {zone}"] = [Text(x + 8, y + 32, words, "violet", 11, room=PANEL_WIDTH - 12)]
    return layers


def _place(zone: int, slot: int) -> tuple[float, float]:
    """Where the square of a host begins."""
    x, y = _corner(zone)
    row, column = (0, slot) if slot < MOST_SERVERS else (1, slot - MOST_SERVERS)
    return x + 8 + CELL * column, y + 40 + (CELL + 6) * row


@functools.cache
def _true_host(
    zone: int, slot: int, held: int, reliability: int, decoys: int, ot_off: int, framed: bool, attacked: bool
) -> Sequence[Shape]:
    x, y = _place(zone, slot)
    words = [ACCESS[held] or "clean", f"services {reliability} % reliable" if reliability < 100 else ""]
    words += [f"{decoys} decoys" if decoys else "", "OT service stopped" if ot_off else ""]
    shapes = _square(x, y, *ACCESS_LOOKS[held], f"{_plain(zone, slot)}: {', '.join(filter(None, words))}", framed)
    if reliability < 100:
        shapes.append(Box(x, y + SIDE - 4, SIDE, 4, "orange"))
    shapes += [Circle(x + 3.5 + 5 * k, y + 3.5, 2, "green") for k in range(min(decoys, 3))]
    return [*shapes, Circle(x + SIDE / 2, y + SIDE / 2 + 1, 3, "ink")] if attacked else shapes


@functools.cache
def _seen_host(zone: int, slot: int, created: bool, touched: bool, framed: bool) -> Sequence[Shape]:
    words, colour, opacity = ALARM_LOOKS[created, touched]
    return _square(*_place(zone, slot), colour, opacity, f"{_plain(zone, slot)}: {words}", framed)


def _square(x: float, y: float, colour: str, opacity: float, tip: str, framed: bool) -> list[Shape]:
    edge = Box(x, y, SIDE, SIDE, "axis", outlined=True, radius=3)
    if framed:
        edge = Box(x - 1.5, y - 1.5, SIDE + 3, SIDE + 3, "blue", outlined=True, radius=4, line_width=2.5)
    return [Box(x, y, SIDE, SIDE, colour, opacity, tip=tip, radius=3), edge]


def _text(shown: Shown, hosts: Sequence[int]) -> list[str]:
    """The zones as a table, for a terminal."""
    truth, zones = shown.truth, shown.truth.host_zone[0]
    lines = [f"{'zone':<20}{'hosts':>6}{'user':>6}{'root':>6}{'alarms':>8}  lets nothing in from"]
    for zone in range(NUM_ZONES):
        own = [h for h in hosts if zones[h] == zone]
        if zone == IN or not own:
            continue
        user, root = (sum(1 for h in own if truth.access[0, h] == access) for access in (1, 2))
        alarms = sum(1 for h in own if truth.creation[0, h] or truth.connection[0, h])
        blocked = " ".join(SHORT[z] for z in range(NUM_ZONES) if truth.blocks[0, zone, z])
        marked = f"[bold red]{root:>6}[/]" if root else f"{root:>6}"
        lines.append(f"{TITLES[zone]:<20}{len(own):>6}{user:>6}{marked}{alarms:>8}  {blocked}".rstrip())
    return lines


# Simple teams


def player(name: str, env_name: str, seed: int, env: Cage4VectorEnv) -> TeamPlayer:
    """The simple team of that name, in an env that shows what the original does."""
    team = make_baseline(name, seed)
    if env.memory is not None:
        raise RedlineError("Simple teams are watched where they see what the original shows. Leave --face out.")
    if name not in FACES_OF:
        return lambda observations, infos: Move(team(observations, infos["action_mask"], infos["acting"])[0])
    memory, asked = EnterpriseMemory(), np.zeros(NUM_BLUE, np.int64)
    begun = False

    def act(observations: np.ndarray, infos: Infos) -> Move:
        nonlocal begun, asked
        if begun:
            memory.see(observations[0], asked)
        else:
            memory.reset(observations[0], infos["action_mask"][0])
        begun, asked = True, memory.full_actions(team(memory.rows, memory.masks, memory.acting))
        return Move(asked)

    return act


PLAY = Play(film, note, player, players=lambda env: BASELINES)  # type: ignore[arg-type]
