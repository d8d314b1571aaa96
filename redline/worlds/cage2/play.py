"""A CAGE-2 episode to be watched: the network as it is beside the network as Blue sees it, step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from redline.learn.watching import Move, Player, WatchedEpisode, WatchedStep
from redline.report.draw import Box, Circle, Drawing, Polyline, Shape, Text
from redline.report.film import Film, Frame, Key, Moment, Play, Scene, likeliest_of, title_of
from redline.worlds.cage2.baselines import BASELINES, make_baseline
from redline.worlds.cage2.habits import habits
from redline.worlds.cage2.rules.kernel import OT_COST, RESTORE_COST
from redline.worlds.cage2.rules.observe import ATTACK, PRIVILEGED, SCAN, UNKNOWN_ACCESS, USER_ACCESS
from redline.worlds.cage2.rules.red import (
    HIT_DECOY,
    INEFFECTIVE,
    LANDED,
    NEVER_SCANNED,
    NO_LISTENER,
    UNREACHABLE,
    WEAK_ACCOUNT_MISSING,
)
from redline.worlds.cage2.rules.scenario import (
    BLUE_ANALYSE,
    BLUE_RESTORE,
    COSTS_ONE,
    COSTS_TEN,
    DECOYS,
    DISCOVER_SERVICES,
    DISCOVER_SYSTEMS,
    ESCALATE,
    EXPLOIT,
    FALSE,
    HOSTS,
    IMPACT,
    NUM_HOSTS,
    OP_SERVER,
    RED_AGENTS,
    SUBNET_OF,
    TRUE,
    describe_action,
)

SUBNETS = ("Enterprise", "Operational", "User")
EXPLOITS = (
    "EternalBlue", "BlueKeep", "HTTPRFI", "HTTPSRFI", "SSHBruteForce", "SQLInjection", "HarakaRCE",
    "FTPDirectoryTraversal",
)  # fmt: skip
OUTCOMES = {
    NEVER_SCANNED: "it never scanned that host", UNREACHABLE: "it cannot get there", NO_LISTENER: "nothing listens",
    HIT_DECOY: "caught by a decoy", LANDED: "it landed", WEAK_ACCOUNT_MISSING: "no account has a weak password",
    INEFFECTIVE: "the service is dead",
}  # fmt: skip
ACCESS = ("", "user", "root")
ACCESS_LOOKS = (("soft", 1.0), ("gold", 0.5), ("red", 0.6))
BELIEFS = {0: "", UNKNOWN_ACCESS: "unknown", USER_ACCESS: "user", PRIVILEGED: "root"}
BELIEF_LOOKS = {0: ("soft", 1.0), UNKNOWN_ACCESS: ("sky", 0.4), USER_ACCESS: ("gold", 0.5), PRIVILEGED: ("red", 0.6)}

RED_DASH = (6.0, 3.0)


def dashed(x: float, y: float, width: float, height: float) -> Polyline:
    """The frame around what Red has just acted on."""
    corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
    return Polyline([corners], "red", 2.5, dash=RED_DASH)


KEYS = (
    Key([Box(1, 1, 20, 14, *ACCESS_LOOKS[1], radius=3)], "Red has user access"),
    Key([Box(1, 1, 20, 14, *ACCESS_LOOKS[2], radius=3)], "Red has root access"),
    Key([Box(1, 1, 20, 14, *BELIEF_LOOKS[UNKNOWN_ACCESS], radius=3)], "Blue is not sure"),
    Key([Circle(11, 8, 3.4, "green")], "a decoy"),
    Key([Box(2, 2, 18, 12, "blue", outlined=True, radius=4, line_width=3)], "Blue has just acted here"),
    Key([dashed(2, 2, 18, 12)], "Red has just acted here"),
)
COLUMNS = (2, 0, 1)
"""Subnets from left to right: the way Red takes."""
WIDTH, BOX_WIDTH, BOX_HEIGHT, ROW = 460, 122, 42, 54
MARGIN = 12
COLUMN = (WIDTH - BOX_WIDTH - 2 * MARGIN) / 2
GAP = COLUMN - BOX_WIDTH - 20
"""Pixels between two subnets."""
TOP = 74
TRUTH, BELIEF = "truth", "belief"
VIEWS = {TRUTH: "As it is: Red's access", BELIEF: "As Blue sees it"}


def note(env: gym.Env) -> Any:
    """A copy of the env's record."""
    return env.unwrapped.batch.state[0].copy()  # type: ignore[attr-defined]


def film(episode: WatchedEpisode) -> Film:
    """The episode with both maps."""
    records = [episode.start, *(step.note for step in episode.steps)]
    frames = [_beginning(records[0])]
    for t, step in enumerate(episode.steps):
        frames.append(_frame(episode, t, step, records[t + 1]))
    scenes = [Scene(_ground(title), tuple(f"{view} {host}" for host in HOSTS)) for view, title in VIEWS.items()]
    named = dataclasses.replace(episode, env=f"{episode.env} against {RED_AGENTS[records[0].red_agent]}")
    return Film(title_of(named), frames, scenes, _moments(records), KEYS)


def _beginning(record: Any) -> Frame:
    facts = [("Red", f"{RED_AGENTS[record.red_agent]}, with a foothold on User0")]
    return Frame("The beginning", facts, layers=_layers(record), text=_text(record))


def _frame(episode: WatchedEpisode, t: int, step: WatchedStep, record: Any) -> Frame:
    facts = [("Blue", blue_words(record)), ("Red", red_words(record))]
    if record.green_kind:
        facts.insert(1, ("Green", f"scans {HOSTS[record.green_host]}"))
    seen = [f"{HOSTS[h]} {_activity(record, h)}" for h in range(NUM_HOSTS) if _activity(record, h)]
    facts.append(("Alerts", ", ".join(seen) or "none"))
    lures = [f"{HOSTS[h]} ({', '.join(decoys_of(record, h))})" for h in range(NUM_HOSTS) if record.decoys[h]]
    if lures:
        facts.append(("Decoys", ", ".join(lures)))
    return Frame(
        f"Step {t + 1}", facts, step.reward, reasons(record, step.reward), likeliest_of(episode, step),
        step.choice.value, _layers(record), _text(record),
    )  # fmt: skip


# In words


def blue_words(record: Any) -> str:
    """Blue's latest action, and whether it came to anything."""
    action = int(record.last_action)
    failed = ", which fails: no decoy fits there" if record.blue_success == FALSE else ""
    return "does nothing" if action == 0 else describe_action(action) + failed


def red_words(record: Any) -> str:
    """Red's latest action, and what came of it."""
    kind, target = int(record.red_kind), int(record.red_target)
    failed = "" if record.red_success == TRUE else ": it fails"
    if kind == DISCOVER_SYSTEMS:
        return f"looks for hosts in the {SUBNETS[target]} subnet{failed}"
    if kind == DISCOVER_SERVICES:
        return f"scans the ports of {HOSTS[target]}"
    if kind == EXPLOIT:
        how = f" by {EXPLOITS[record.red_exploit]}" if record.red_exploit >= 0 else ""
        return f"exploits {HOSTS[target]}{how}: {OUTCOMES.get(int(record.red_outcome), '')}"
    if kind == ESCALATE:
        return f"{'tries to become' if failed else 'becomes'} root on {HOSTS[target]}{failed}"
    if kind == IMPACT:
        return f"Impact: stops the service of {HOSTS[target]}{failed}"
    return "sleeps"


def reasons(record: Any, reward: float) -> list[tuple[str, float]]:
    """What a step cost, and for what; the rest is what obeying a workflow paid."""
    root = int(record.root)
    held = [(f"root on {HOSTS[h]}", -_cost(h) / 10) for h in range(NUM_HOSTS) if root >> h & 1 and _cost(h)]
    if record.ot == 1:
        held.append(("the operational service is down", -OT_COST / 10))
    if record.last_action >= BLUE_RESTORE:
        held.append(("a Restore", -RESTORE_COST / 10))
    paid = reward - sum(points for _, points in held)
    return [*held, ("obedience to the workflow", paid)] if abs(paid) > 1e-6 else held


def _cost(host: int) -> int:
    """Tenths of a point that root on a host costs."""
    return 10 if COSTS_TEN >> host & 1 else COSTS_ONE >> host & 1


def access_of(record: Any, host: int) -> int:
    """Red's hold on a host: 0 none, 1 user, 2 root."""
    if int(record.root) >> host & 1:
        return 2
    return (int(record.seen) | int(record.unseen)) >> host & 1


def belief_of(record: Any, host: int) -> int:
    """What Blue's table says about a host, in the bits of the table."""
    return int(record.table) >> 4 * host & 0b1100


def _activity(record: Any, host: int) -> str:
    return {SCAN: "scanned", ATTACK: "attacked"}.get(int(record.activity) >> 4 * host & 0b11, "")


def decoys_of(record: Any, host: int) -> list[str]:
    """The decoys that run on a host."""
    return [name for d, name in enumerate(DECOYS) if int(record.decoys[host]) >> d & 1]


def _moments(records: Sequence[Any]) -> list[Moment]:
    """The first exploit that landed, each Restore, each Impact, and the first root in each subnet."""
    found: list[Moment] = []
    exploited = False
    rooted = {int(SUBNET_OF[8])}
    for t, record in enumerate(records[1:], start=1):
        if record.red_kind == EXPLOIT and record.red_outcome == LANDED and not exploited:
            exploited = True
            found.append(Moment(t, f"first exploit ({HOSTS[record.red_target]})"))
        if record.red_kind == ESCALATE and record.red_success == TRUE and SUBNET_OF[record.red_target] not in rooted:
            rooted.add(int(SUBNET_OF[record.red_target]))
            found.append(Moment(t, f"root in {SUBNETS[SUBNET_OF[record.red_target]]}"))
        if record.red_kind == IMPACT and record.red_success == TRUE:
            found.append(Moment(t, "Impact"))
        if record.last_action >= BLUE_RESTORE:
            found.append(Moment(t, describe_action(int(record.last_action))))
    return found


# The maps


def _corner(host: int) -> tuple[float, float]:
    """Where the box of a host begins."""
    subnet = int(SUBNET_OF[host])
    row = sum(1 for other in range(host) if SUBNET_OF[other] == subnet)
    return MARGIN + COLUMN * COLUMNS.index(subnet), TOP + ROW * row


def _ground(title: str) -> Drawing:
    """Subnets with their names, and arrows for the way that Red takes through them."""
    shapes: list[Shape] = []
    for k in range(len(COLUMNS) - 1):
        x = MARGIN + COLUMN * (k + 1) - 10 - GAP / 2
        arrow = [(x - 3, TOP + 10), (x + 3, TOP + 16), (x - 3, TOP + 22)]
        shapes.append(Polyline([arrow], "muted", 2))
    for k, subnet in enumerate(COLUMNS):
        x, size = MARGIN + COLUMN * k, int(np.sum(subnet == SUBNET_OF))
        frame = Box(x - 10, TOP - 34, BOX_WIDTH + 20, 34 + size * ROW, "axis", outlined=True, radius=10)
        shapes += [frame, Text(x + BOX_WIDTH / 2, TOP - 15, SUBNETS[subnet], "muted", 13, "middle", 600)]
    return Drawing(title, WIDTH, TOP + 5 * ROW + 6, shapes)


def _layers(record: Any) -> dict[str, list[Shape]]:
    """A layer for each host in both views."""
    layers: dict[str, list[Shape]] = {}
    for host, name in enumerate(HOSTS):
        held, believed = access_of(record, host), belief_of(record, host)
        layers[f"{TRUTH} {name}"] = _host(record, host, ACCESS[held], *ACCESS_LOOKS[held])
        words = " ".join(filter(None, (BELIEFS[believed], _activity(record, host))))
        layers[f"{BELIEF} {name}"] = _host(record, host, words, *BELIEF_LOOKS[believed])
    if record.ot == 1:
        x, y = _corner(OP_SERVER)
        stopped = Text(x + BOX_WIDTH / 2, y + ROW + 16, "service stopped", "red", 13, "middle", 600)
        layers[f"{TRUTH} {HOSTS[OP_SERVER]}"].append(stopped)
    return layers


def _host(record: Any, host: int, words: str, colour: str, opacity: float) -> list[Shape]:
    """A box with the name of the host and words about it; decoys as dots, frames for who has just acted on it."""
    x, y = _corner(host)
    decoys = decoys_of(record, host)
    tip = f"{HOSTS[host]}: {words or 'clean'}" + (f"; decoys: {', '.join(decoys)}" if decoys else "")
    shapes: list[Shape] = [
        Box(x, y, BOX_WIDTH, BOX_HEIGHT, colour, opacity, tip=tip, radius=6),
        Box(x, y, BOX_WIDTH, BOX_HEIGHT, "axis", outlined=True, radius=6),
        Text(x + 9, y + 18, HOSTS[host], "ink", 13, weight=600, inside=True),
        Text(x + 9, y + 34, words, "ink", 12, inside=True, room=BOX_WIDTH - 14),
    ]
    if _blue_host(record) == host:
        shapes.append(Box(x - 2, y - 2, BOX_WIDTH + 4, BOX_HEIGHT + 4, "blue", outlined=True, radius=8, line_width=3))
    if record.red_kind > DISCOVER_SYSTEMS and record.red_target == host:
        shapes.append(dashed(x - 4.5, y - 4.5, BOX_WIDTH + 9, BOX_HEIGHT + 9))
    return [*shapes, *(Circle(x + 12 + 10 * k, y + BOX_HEIGHT - 1, 3.6, "green") for k in range(len(decoys)))]


def _blue_host(record: Any) -> int:
    action = int(record.last_action)
    return (action - BLUE_ANALYSE) % NUM_HOSTS if action >= BLUE_ANALYSE else -1


def _text(record: Any) -> list[str]:
    """Both maps as a table of hosts, for a terminal."""
    lines = [f"{'host':<13}{'Red has':<9}{'Blue sees':<19}decoys"]
    for host in sorted(range(NUM_HOSTS), key=lambda h: (COLUMNS.index(int(SUBNET_OF[h])), h)):
        held, believed = access_of(record, host), belief_of(record, host)
        seen = " ".join(filter(None, (BELIEFS[believed], _activity(record, host))))
        colour = ("", "yellow", "bold red")[held]
        red = f"{ACCESS[held] or '·':<9}"
        mark = ">" if _blue_host(record) == host else " "
        shown = f"[{colour}]{red}[/]" if colour else red
        lines.append(f"{mark}{HOSTS[host]:<12}{shown}{seen or '·':<19}{' '.join(decoys_of(record, host))}".rstrip())
    return lines


# Simple players


def player(name: str, env_name: str, seed: int, env: gym.Env) -> Player:
    """The baseline of that name."""
    batch = env.unwrapped.batch  # type: ignore[attr-defined]
    actor = make_baseline(name, seed, batch)

    return lambda observation, mask: Move(int(actor.act(observation[None], None).actions[0]))


PLAY = Play(film, note, player, habits, lambda env: BASELINES)
