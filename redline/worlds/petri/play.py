"""An episode on a net to be watched: its Gantt chart with a line at the clock, and tokens that move on the net."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from redline.learn.watching import Move, Player, WatchedEpisode, WatchedStep
from redline.report.draw import Box, Circle, Shape, Stroke
from redline.report.film import DESK, PHONE, Film, Frame, Key, Moment, Play, Scene, likeliest_of
from redline.worlds.petri.dispatching import rule_actions, rules_for
from redline.worlds.petri.gantt import lay_out, title_of, unit_of
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.net_picture import picture_of
from redline.worlds.petri.rules.net import Net
from redline.worlds.petri.rules.tables import NONE
from redline.worlds.petri.schedule import Schedule
from redline.worlds.petri.scores import result_of

CURSOR, TOKENS = "cursor", "tokens"
SCREENS = {DESK: 900, PHONE: 358}
"""Pixels that a picture may take."""
KEYS = (
    Key([Stroke(11, 0, 11, 16, "blue", 2)], "the clock: drag it, or click on the chart"),
    Key([Circle(11, 8, 7, "axis", outlined=True, line_width=1.5), Circle(11, 8, 4, "violet")], "a token in a place"),
    Key([Box(9, 1, 4, 14, "axis")], "a transition"),
    Key([Box(8, 0, 6, 16, "orange")], "a transition that is firing"),
)
SHOP_LEGEND = (
    "Wj,k: job j is waiting for its operation k. Im: machine m is idle. A job's tokens and bars share a colour."
)
LEGEND = "Tokens have the colour of their bars."


class Held(NamedTuple):
    """What is remembered of a net after a step."""

    net: Net
    clock: int
    marking: np.ndarray  # int32 [places]  without what firings have taken already
    tokens: np.ndarray  # TOKEN [tokens]
    firings: np.ndarray  # FIRING [under way]
    finished: int


def note(env: gym.Env) -> Held:
    """Clock, marking, tokens and firings under way."""
    state = env.unwrapped.batch.state  # type: ignore[attr-defined]
    one = state.envs[0]
    under_way = state.firings[0, : one.underway].copy()
    resting = state.places.marking[0] - state.places.moving[0]
    net: Net = env.unwrapped.net  # type: ignore[attr-defined]
    return Held(net, int(one.clock), resting, state.tokens[0].copy(), under_way, int(one.finished))


def film(episode: WatchedEpisode) -> Film:
    """The episode with its Gantt chart and, if it can be drawn, its net."""
    instance = parse_petri(episode.env, **episode.options)
    actions = [int(step.choice.action) for step in episode.steps]
    schedule = result_of(episode.player, instance, actions).schedule
    views = [_View(schedule, screen) for screen in SCREENS]
    held = [episode.start, *(step.note for step in episode.steps)]
    frames = [_frame(episode, schedule, t, held, views) for t in range(len(held))]
    scenes = [scene for view in views for scene in view.scenes([each.clock for each in held])]
    who = f"{episode.player} on " if episode.player else ""
    title = f"{who}{title_of(schedule)} (seed {episode.seed})"
    return Film(title, frames, scenes, list(_moments(held, schedule)), KEYS, _legend(schedule.net))


def _legend(net: Net) -> str:
    names = {place.name for place in net.places}
    return SHOP_LEGEND if {"W0,0", "I0"} <= names else LEGEND


class _View:
    """The chart and the net, as wide as a kind of screen is."""

    def __init__(self, schedule: Schedule, screen: str) -> None:
        self.screen, width = screen, SCREENS[screen]
        self._chart, self._panels = lay_out(schedule, width)
        self._picture = picture_of(schedule.net, width)

    def scenes(self, clocks: list[int]) -> list[Scene]:
        """What stands still; a chart in one piece can be pointed at, to go to a time."""
        axis = self._panels[0].axis if len(self._panels) == 1 else None
        places = () if axis is None else tuple(float(axis.at(clock)) for clock in clocks)
        chart = Scene(self._chart, (f"{CURSOR} {self.screen}",), self.screen, places)
        if self._picture is None:
            return [chart]
        return [chart, Scene(self._picture.ground(), (f"{TOKENS} {self.screen}",), self.screen)]

    def layers(self, now: Held, where: dict[str, list[int | None]]) -> dict[str, list[Shape]]:
        """What moves."""
        cursor = [shape for panel in self._panels for shape in panel.cursor(now.clock)]
        tokens = [] if self._picture is None else self._picture.tokens(where)
        return {f"{CURSOR} {self.screen}": cursor, f"{TOKENS} {self.screen}": tokens}


def _frame(episode: WatchedEpisode, schedule: Schedule, t: int, held: list[Held], views: list[_View]) -> Frame:
    step: WatchedStep | None = episode.steps[t - 1] if t else None
    now, net = held[t], schedule.net
    unit = unit_of(schedule)
    where = whereabouts(net, now)
    facts = [("clock", f"{now.clock:,}{unit}"), ("finished", str(now.finished))]
    if step is not None:
        facts.insert(0, ("action", episode.name_of(step.choice)))
    under_way = [f"{net.transitions[each.transition].name} until {each.ends:,}{unit}" for each in now.firings]
    facts.append(("under way", ", ".join(under_way) or "nothing"))
    layers = {name: shapes for view in views for name, shapes in view.layers(now, where).items()}
    return Frame(
        f"Step {t}" if t else "The beginning", facts, None if step is None else step.reward,
        likeliest=[] if step is None else likeliest_of(episode, step),
        value=None if step is None else step.choice.value, layers=layers, text=_text(where),
    )  # fmt: skip


def whereabouts(net: Net, now: Held) -> dict[str, list[int | None]]:
    """Tokens by the place or the transition that they are in; None for tokens that are only counted."""
    found: dict[str, list[int | None]] = defaultdict(list)
    if net.routes:
        moving = {int(each.token): net.transitions[each.transition].name for each in now.firings}
        for k, token in enumerate(now.tokens):
            if k in moving:
                found[moving[k]].append(k)
            elif token.place != NONE:
                found[net.places[token.place].name].append(k)
        return dict(found)
    for place, count in zip(net.places, now.marking.tolist(), strict=True):
        found[place.name] += [place.job if place.job >= 0 else None] * count
    for each in now.firings:
        transition = net.transitions[each.transition]
        jobs = [net_place.job for net_place in net.places if net_place.name in dict(transition.inputs)]
        found[transition.name].append(max(jobs) if max(jobs, default=-1) >= 0 else None)
    return dict(found)


def _text(where: dict[str, list[int | None]]) -> list[str]:
    """Who is where, in words."""
    return [
        f"  {name:<18} " + (" ".join(map(str, held)) if held[0] is not None else f"{len(held)}")
        for name, held in where.items()
        if held
    ]


def _moments(held: list[Held], schedule: Schedule) -> Iterator[Moment]:
    """When tokens were finished, and the end."""
    for t in range(1, len(held)):
        if held[t].finished > held[t - 1].finished:
            yield Moment(t, f"{held[t].finished} finished by {held[t].clock:,}{unit_of(schedule)}")
    if schedule.outcome != "done":
        yield Moment(len(held) - 1, schedule.outcome)


def player(name: str, env_name: str, seed: int, env: gym.Env) -> Player:
    """A dispatching rule, or the rule that never waits."""
    coming = iter(rule_actions(parse_petri(env_name), name))
    return lambda observation, mask: Move(next(coming))


PLAY = Play(film, note, player, players=lambda env: rules_for(parse_petri(env)))


def still(episode: WatchedEpisode) -> Film:
    """The net as it is now, for an env that renders itself."""
    now: Held = episode.steps[-1].note if episode.steps else episode.start
    where = whereabouts(now.net, now)
    step = episode.steps[-1] if episode.steps else None
    facts = [("clock", f"{now.clock:,}"), ("finished", str(now.finished))]
    if step is not None:
        facts.insert(0, ("action", episode.name_of(step.choice)))
    picture = picture_of(now.net, SCREENS[DESK])
    scenes = [] if picture is None else [Scene(picture.ground(), (TOKENS,))]
    layers = {} if picture is None else {TOKENS: picture.tokens(where)}
    reward = None if step is None else step.reward
    return Film(now.net.name, [Frame("The beginning", facts, reward, layers=layers, text=_text(where))], scenes)


STILL = Play(still, note)
