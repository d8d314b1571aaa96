"""A film as HTML: scenes, a slider with play, pause and speed, links to moments, and what happened in each frame.

Every picture is drawn by the drawing kit before the page is written; the script only puts them up. Equal pictures are
stored once, so that a page of a hundred steps stays small.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from redline.report.draw import Shape, escape, fixed, inline_svg, markup_of, short, to_svg
from redline.report.film import KEY_SIZE, Film, Frame, Scene
from redline.report.page import Section, for_screen, write_page

SPEEDS = (1, 2, 5, 10, 30)
KEYS = "Keys: space to play or pause, ← and → for one step, Home and End for the ends, + and − for the speed."
CURVE_HEIGHT = 80
WIDE = 600
"""Scenes wider than this stand below each other."""


def write_film(path: Path, film: Film) -> Path:
    """Write a film as a page of its own."""
    title, _, subtitle = film.title.partition(": ")
    return write_page(
        path, f"Redline: {title}", subtitle, [Section("The episode", film_html(film))], "Try --html play.html."
    )


def film_html(film: Film, start: int = 0) -> str:
    """A film as a part of a page that shows frame `start` first."""
    has_images = any(frame.image for frame in film.frames)
    first = film.frames[start]
    scenes = "".join(_scene(scene, first, k) for k, scene in enumerate(film.scenes))
    tall = " tall" if any(scene.drawing.width > WIDE for scene in film.scenes) else ""
    picture = f'<img data-part="picture" alt="the env at this step" src="{_url(first.image)}">' if has_images else ""
    return f"""<div class="film" role="group" aria-label="{escape(film.title)}" data-start="{start}">
<div class="scenes{tall}">{scenes}{picture}</div>
{_keys(film)}
<div class="deck">{_controls(film)}
{_curve(film)}</div>
<div class="now" data-part="now" aria-live="polite">
<div><h3 data-part="title">{escape(first.title)}</h3><dl data-part="facts">{_facts(first)}</dl></div>
<div><p class="sums">Reward <strong data-part="reward"></strong>, return so far <strong data-part="return"></strong></p>
<ul data-part="reasons"></ul>
<div data-part="policy"><h3>Most likely actions</h3><ul class="likeliest" data-part="likeliest"></ul>
<p class="quiet" data-part="value"></p></div></div>
</div>
{_moments(film)}
<p class="quiet">{KEYS}</p>
<script type="application/json">{_data(film)}</script>
</div>"""


def _scene(scene: Scene, frame: Frame, number: int) -> str:
    drawn = to_svg(scene.drawing, layers={name: frame.layers.get(name, ()) for name in scene.layers})
    if scene.clock:
        drawn = f'<div data-scrub="{number}">{drawn}</div>'
    return for_screen(scene.screen, drawn)


def _keys(film: Film) -> str:
    """What colours and marks mean, and a line about the rest."""
    rows = "".join(f"<li>{inline_svg(key.shapes, *KEY_SIZE)}{escape(key.words)}</li>" for key in film.keys)
    below = f'<p class="quiet">{escape(film.legend)}</p>' if film.legend else ""
    return (f'<ul class="keys" aria-label="legend">{rows}</ul>' if rows else "") + below


def _controls(film: Film) -> str:
    options = "".join(f'<option value="{s}"{" selected" if s == 5 else ""}>{s} a second</option>' for s in SPEEDS)
    return f"""<div class="controls">
<button type="button" data-part="back" aria-label="one step back" title="one step back">▏◀</button>
<button type="button" data-part="play" aria-label="play">▶</button>
<button type="button" data-part="forward" aria-label="one step forward" title="one step forward">▶▏</button>
<input type="range" data-part="slider" min="0" max="{len(film.frames) - 1}" value="0" aria-label="step">
<select data-part="speed" aria-label="speed">{options}</select>
</div>"""


def _curve(film: Film) -> str:
    """The return so far, over all frames, with a line where we are; its name stands in the corner that is free."""
    returns = np.array(film.returns())
    low, high = float(returns.min()), float(returns.max())
    heights = CURVE_HEIGHT - 6 - (CURVE_HEIGHT - 12) * (returns - low) / ((high - low) or 1.0)
    xs = np.linspace(0, 1000, len(returns))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, heights, strict=True))
    marks = "".join(
        f'<line x1="{xs[m.frame]:.1f}" x2="{xs[m.frame]:.1f}" y1="0" y2="10" stroke="var(--orange)"'
        f' stroke-width="2" vector-effect="non-scaling-stroke"/>'
        for m in film.moments
    )
    name = f'<span class="{"right" if returns[-1] < returns[0] else "left"}">return so far</span>'
    return (
        f'<div class="over">{name}<svg class="curve" data-part="curve" viewBox="0 0 1000 {CURVE_HEIGHT}"'
        f' preserveAspectRatio="none" role="img"'
        f' aria-label="Return so far, from {short(low)} to {short(high)}">{marks}'
        f'<polyline points="{points}" fill="none" stroke="var(--muted)" stroke-width="2"'
        f' vector-effect="non-scaling-stroke"/><line data-part="cursor" x1="0" x2="0" y1="0" y2="{CURVE_HEIGHT}"'
        f' stroke="var(--blue)" stroke-width="2" vector-effect="non-scaling-stroke"/></svg></div>'
    )


def _moments(film: Film) -> str:
    """Links to moments; what happened several times is named once, with a link for each time."""
    times: dict[str, list[int]] = {}
    for moment in film.moments:
        times.setdefault(moment.words, []).append(moment.frame)
    links = "".join(_links(words, frames) for words, frames in times.items())
    return f'<nav class="moments" aria-label="moments">{links}</nav>' if links else ""


def _links(words: str, frames: Sequence[int]) -> str:
    if len(frames) == 1:
        return f'<button type="button" data-go="{frames[0]}">{frames[0]}: {escape(words)}</button>'
    each = "".join(
        f'<button type="button" data-go="{frame}" aria-label="{escape(words)}, step {frame}">{frame}</button>'
        for frame in frames
    )
    return f'<span class="times"><span>{escape(words)}</span>{each}</span>'


def _facts(frame: Frame) -> str:
    return "".join(f"<dt>{escape(who)}</dt><dd>{escape(what)}</dd>" for who, what in frame.facts)


def _data(film: Film) -> str:
    """All frames as JSON that is safe inside a script element."""
    pieces, images = _Pieces(), dict[str, int]()
    frames = [_frame(frame, total, pieces, images) for frame, total in zip(film.frames, film.returns(), strict=True)]
    clocks = {k: [round(x, 1) for x in scene.clock] for k, scene in enumerate(film.scenes) if scene.clock}
    data = {"frames": frames, "pieces": list(pieces.found), "images": list(images), "clocks": clocks}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


class _Pieces:
    """Pictures of layers, each stored once. Shapes that a film shows again and again are drawn once, too."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self._drawn: dict[int, int] = {}  # by identity: the film holds them as long as we are at it

    def number(self, shapes: Sequence[Shape]) -> int:
        """The number of the picture of these shapes."""
        if id(shapes) not in self._drawn:
            self._drawn[id(shapes)] = self.found.setdefault(markup_of(shapes), len(self.found))
        return self._drawn[id(shapes)]


def _frame(frame: Frame, total: float, pieces: _Pieces, images: dict[str, int]) -> dict[str, Any]:
    return {
        "title": frame.title,
        "facts": [list(fact) for fact in frame.facts],
        "reward": "–" if frame.reward is None else _points(frame.reward),
        "total": _points(total),
        "reasons": [[why, _points(points)] for why, points in frame.reasons],
        "likeliest": [[each.name, round(each.chance, 4), each.taken] for each in frame.likeliest],
        "value": None if frame.value is None else fixed(frame.value),
        "layers": {name: pieces.number(shapes) for name, shapes in frame.layers.items()},
        "image": None if frame.image is None else images.setdefault(_url(frame.image), len(images)),
    }


def _points(number: float) -> str:
    return fixed(number) if abs(number) >= 0.005 or number == 0 else short(number)


def _url(image: bytes | None) -> str:
    return "" if image is None else f"data:image/png;base64,{base64.b64encode(image).decode()}"


def films_html(titled: Sequence[tuple[str, Film]]) -> str:
    """Several films below each other, each with a heading."""
    return "".join(f"<h3>{escape(words)}</h3>\n{film_html(film)}" for words, film in titled)
