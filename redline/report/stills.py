"""The latest step of one of our own envs, as text or as a picture: what Gymnasium calls rendering."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.text import Text as Markup

from redline.learn.watching import Move, WatchedEpisode, WatchedStep
from redline.report.draw import Drawing, Text, dots_of
from redline.report.film import Film, Frame, Play, plain_film
from redline.report.film_text import frame_lines
from redline.worlds.batch import SeenStep, SingleEnv

LINE = 18
"""Pixels from one line of text to the next."""
MOST_LINES = 40


def ansi(env: SingleEnv, observation: np.ndarray, seen: SeenStep | None) -> str:
    """The latest step in words."""
    console = Console(file=io.StringIO(), width=120, highlight=False)
    film = _film(env, observation, seen)
    for line in frame_lines(film.frames[-1], 0.0 if seen is None else seen.total):
        console.print(line, soft_wrap=True)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def rgb_array(env: SingleEnv, observation: np.ndarray, seen: SeenStep | None) -> np.ndarray:
    """The latest step as dots uint8 [height, width, 3], as many at every step; needs resvg-py."""
    film = _film(env, observation, seen)
    total = 0.0 if seen is None else seen.total
    return dots_of(film.still(len(film.frames) - 1, told=False) if film.scenes else _page(film.frames[-1], total))


def _film(env: SingleEnv, observation: np.ndarray, seen: SeenStep | None) -> Film:
    """A film of the latest step alone."""
    play = env.show.load() if env.show is not None else Play(plain_film)
    now = play.note(env)
    steps = () if seen is None else (WatchedStep(observation, Move(seen.action), seen.reward, now),)
    episode = WatchedEpisode(
        type(env).__name__, 0, "", env.action_names, env.observation_names, now, steps, False, last=observation
    )
    film = play.film(episode)
    if seen is None:
        return film
    latest = film.frames[-1]
    titled = replace(latest, title=f"Step {seen.number}")
    return replace(film, frames=[*film.frames[:-1], titled])


def _page(frame: Frame, total: float) -> Drawing:
    """Words as a picture, of a world that draws none."""
    lines = frame_lines(frame, total)[:MOST_LINES]
    shapes = [Text(0, LINE * (k + 2.5), Markup.from_markup(line).plain) for k, line in enumerate(lines)]
    return Drawing("", 480, LINE * (MOST_LINES + 3), shapes)
