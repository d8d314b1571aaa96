"""Episodes to be watched: a film has a frame for every step, whatever world it comes from.

A world's `Play` says what to remember of an env and makes the film of an episode. A world without one gets the plain
film: names and values of what was seen, the action, the reward, and the actions that were likeliest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from redline.learn.watching import Player, WatchedEpisode, WatchedStep
from redline.report.draw import PALETTE, Drawing, Group, Shape, Text, fixed, hue, short, text_width
from redline.worlds.world import Named, World

DESK, PHONE = "desk", "phone"
HEADING, GAP = 30.0, 40.0
"""Pixels above the scenes of a still, and between them."""
LINE, MOST_FACTS = 20.0, 8
"""Pixels from one line below a still to the next, and how many of them tell who did what."""
KEY_SIZE = (22, 18)
"""Pixels of a sample in the list of what scenes show."""
FEW_VALUES = 16
"""Numbers of an observation that the plain film shows even where they are 0."""
MOST_VALUES = 64
"""Numbers of an observation that the plain film shows."""


@dataclass(frozen=True)
class Likely:
    """An action that might have been taken."""

    name: str
    chance: float
    taken: bool


@dataclass(frozen=True)
class Frame:
    """All there is to see after one step; the first one shows the beginning."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    """Who did what, each with a word for who."""
    reward: float | None = None
    reasons: Sequence[tuple[str, float]] = ()
    """What the reward is made up of."""
    likeliest: Sequence[Likely] = ()
    value: float | None = None
    layers: Mapping[str, Sequence[Shape]] = field(default_factory=dict)
    """What changes in the scenes, by name: layers that a frame leaves out are empty in it."""
    text: Sequence[str] = ()
    """The same picture in characters, with rich's markup, for a terminal."""
    image: bytes | None = None
    """A picture that the env itself made, as PNG."""


class Key(NamedTuple):
    """A sample of what scenes show, drawn in a space of KEY_SIZE pixels, and what it means."""

    shapes: Sequence[Shape]
    words: str


@dataclass(frozen=True)
class Scene:
    """A picture that stands still, with the names of the layers that change on top of it."""

    drawing: Drawing
    layers: tuple[str, ...]
    screen: str = ""
    """Which screens it is for, where there is one of its kind for each: DESK or PHONE."""
    clock: tuple[float, ...] = ()
    """Where the time of each frame stands on the picture, from the left: pointing there leads to that frame."""


@dataclass(frozen=True)
class Moment:
    """A frame worth jumping to."""

    frame: int
    words: str


@dataclass(frozen=True)
class Film:
    """An episode to be watched."""

    title: str
    frames: Sequence[Frame]
    scenes: Sequence[Scene] = ()
    moments: Sequence[Moment] = ()
    keys: Sequence[Key] = ()
    """What the colours and marks of the scenes mean."""
    legend: str = ""
    """What else helps to read them."""

    def returns(self) -> list[float]:
        """The return so far, at every frame."""
        return np.cumsum([frame.reward or 0.0 for frame in self.frames]).tolist()

    def still(self, frame: int, told: bool = True) -> Drawing:
        """All scenes of one frame side by side, as a picture of its own; unless it is `told`, without words below them."""
        shapes: list[Shape] = []
        x = height = 0.0
        for scene in (each for each in self.scenes if each.screen != PHONE):
            drawing = scene.drawing
            moving = [shape for layer in scene.layers for shape in self.frames[frame].layers.get(layer, ())]
            shapes.append(Group([drawing.heading, *drawing.shapes, *moving], shift=(x, HEADING)))
            x, height = x + drawing.width + GAP, max(height, drawing.height)
        width = x - GAP
        below, y = self._below(frame, width, HEADING + height) if told else ([], HEADING + height)
        return Drawing(f"{self.title}, {self.frames[frame].title.lower()}", width, y, [*shapes, *below])

    def _below(self, frame: int, width: float, top: float) -> tuple[list[Shape], float]:
        """Who did what, and what the marks mean, from `top` on; and where that ends."""
        shapes: list[Shape] = []
        column = 14 + max((text_width(who, 13) for who, _ in self.frames[frame].facts), default=0.0)
        y = top + LINE
        for who, what in self.frames[frame].facts[:MOST_FACTS]:
            shapes += [Text(0, y, who, "muted", 13), Text(column, y, what, "ink", 13, room=width - column)]
            y += LINE
        x = 0.0
        for key in self.keys:
            taken = KEY_SIZE[0] + 6 + text_width(key.words, 12) + 18
            if x + taken > width:
                x, y = 0.0, y + LINE
            shapes.append(Group(key.shapes, shift=(x, y)))
            shapes.append(Text(x + KEY_SIZE[0] + 6, y + 13, key.words, "muted", 12))
            x += taken
        return shapes, y + (KEY_SIZE[1] + 4 if self.keys else 0)


@dataclass(frozen=True)
class Play:
    """How a world shows its episodes."""

    film: Callable[[WatchedEpisode], Film]
    note: Callable[[gym.Env], Any] = lambda env: None
    """What to remember of an env at the beginning and after every step."""
    player: Callable[[str, str, int, gym.Env], Player] | None = None
    """A simple player by name: from its name, that of the env, a seed, and the env it is going to play in."""
    habits: Callable[[Sequence[WatchedEpisode]], str] | None = None
    """What the player of some episodes does, as HTML for a report."""
    players: Callable[[str], Sequence[str]] = lambda env: ()
    """Names of its simple players, in an env by name."""


def play_of(world: World) -> Play:
    """How a world shows its episodes: in its own way, or plainly."""
    found: Play | None = world.play.load() if isinstance(world.play, Named) else world.play
    return found or Play(plain_film, rendered)


def title_of(episode: WatchedEpisode) -> str:
    """Who played what, and how it went, in one line."""
    who = f"{episode.player} on " if episode.player else ""
    return f"{who}{episode.env}: return {fixed(episode.total)} in {len(episode.steps):,} steps (seed {episode.seed})"


def likeliest_of(episode: WatchedEpisode, step: WatchedStep) -> list[Likely]:
    """The actions that were likeliest before a step."""
    return [
        Likely(episode.action_name(action), chance, action == step.choice.number)
        for action, chance in step.choice.likeliest
    ]


def rendered(env: gym.Env) -> np.ndarray | None:
    """The picture that an env makes of itself, where it was made to do so."""
    if env.render_mode != "rgb_array":
        return None
    picture = env.render()
    return picture if isinstance(picture, np.ndarray) and picture.ndim == 3 else None


def plain_film(episode: WatchedEpisode) -> Film:
    """The film of any world: what was seen, done and paid."""
    from redline.report.draw.bitmap import encode_png

    notes = [episode.start, *(step.note for step in episode.steps)]
    numbers = [*(step.observation for step in episode.steps), episode.last]
    if not any(isinstance(note, np.ndarray) for note in notes):
        notes = [picture_of(each, episode.picture) for each in numbers]
    images = [encode_png(note) if isinstance(note, np.ndarray) else None for note in notes]
    frames = [Frame("The beginning", _seen(episode, numbers[0]), image=images[0])]
    for t, step in enumerate(episode.steps):
        frames.append(
            Frame(
                f"Step {t + 1}",
                [("action", episode.name_of(step.choice)), *_seen(episode, numbers[t + 1])],
                step.reward,
                likeliest=likeliest_of(episode, step),
                value=step.choice.value,
                image=images[t + 1],
            )
        )
    end = Moment(len(frames) - 1, "the end" if episode.terminated else "cut off")
    best = [Moment(t, f"reward {short(frames[t].reward or 0.0)}") for t in _extremes(episode)]
    return Film(title_of(episode), frames, moments=[*best, end], legend="" if any(images) else episode.unseen)


def picture_of(numbers: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """An observation as dots uint8 [rows, columns, 3], if it is a picture: grey, in colours, or a colour per channel."""
    if numbers is None or not shape:
        return None
    levels = np.asarray(numbers, np.float64).reshape(shape).transpose(1, 2, 0)
    if levels.shape[2] in (1, 3):
        return (255 * levels.clip(0, 1) * np.ones(3)).astype(np.uint8)
    colours = np.array([[int(PALETTE[hue(k)][1][i : i + 2], 16) for i in (1, 3, 5)] for k in range(levels.shape[2])])
    shown = levels.argmax(axis=2)
    return (colours[shown] * levels.max(axis=2, keepdims=True).clip(0, 1)).astype(np.uint8)


def _extremes(episode: WatchedEpisode) -> list[int]:
    """The frames of the least and the greatest reward, where rewards differ."""
    rewards = [step.reward for step in episode.steps]
    if len(set(rewards)) < 2:
        return []
    usual = max(set(rewards), key=rewards.count)
    return sorted({1 + int(np.argmin(rewards)), 1 + int(np.argmax(rewards))} - {1 + rewards.index(usual)})


def _seen(episode: WatchedEpisode, numbers: np.ndarray | None) -> list[tuple[str, str]]:
    """Names and values of an observation; only a handful of long ones."""
    if numbers is None:
        return []
    if len(numbers) > MOST_VALUES and not episode.observation_names:
        return [("observation", f"{len(numbers):,} numbers from {numbers.min():.4g} to {numbers.max():.4g}")]
    names = episode.observation_names or tuple(f"observation {k}" for k in range(len(numbers)))
    shown = [(name, f"{number:.4g}".replace("-", "−")) for name, number in zip(names, numbers.tolist(), strict=False)]
    if len(shown) <= FEW_VALUES:
        return shown
    told = [pair for pair, number in zip(shown, numbers.tolist(), strict=False) if number][:MOST_VALUES]
    return [*told, ("all others", "0")]  # of many, those that are not zero say most
