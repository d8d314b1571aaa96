"""The pictures of a workflow search as PNG files, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.files import reason
from redline.report.dots import Kind
from redline.report.heatmap import ABOVE, BELOW, STRONGEST, shades
from redline.report.page import HUES, PALETTE, short
from redline.report.search import (
    PLACES,
    WIDE,
    Search,
    above,
    curves,
    far_below,
    fixed,
    lowest_shown,
    position_values,
    ranked,
    read_search,
)
from redline.runs import Run
from redline.search.workflow import TYPES


def write_search_pngs(run: Run) -> list[Path]:
    """Write the main charts into the run folder as PNG files. A chart with nothing to show yet is left out."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RedlineError("PNG files need matplotlib: pip install 'redline[plot]'.") from error
    search = read_search(run)
    pictures: list[tuple[str, bool, Callable[[Search], Figure]]] = [
        ("ranking.png", any(math.isfinite(each.mean) for each in search.workflows), _ranking_figure),
        ("gp.png", search.beliefs is not None, _beliefs_figure),
        ("positions.png", search.beliefs is not None, _places_figure),
        ("learning.png", bool(len(search.updates["step"])), _learning_figure),
    ]
    written = []
    for name, has_data, draw in pictures:
        if not has_data:
            continue
        path = run.path / name
        try:
            draw(search).savefig(path, dpi=160)
        except OSError as error:
            raise RedlineError(f"The picture cannot be written to {path}: {reason(error)}.") from error
        written.append(path)
    return written


def _new_figure(width: float, height: float, title: str) -> tuple[Any, Any]:
    """A figure and its axes, in the colours of the page in light mode."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), layout="constrained")
    axes = fig.add_subplot()
    fig.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_light("ink"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_light("axis"))
    axes.tick_params(colors=_light("muted"), labelsize=9)
    axes.grid(color=_light("grid"), linewidth=0.8)
    axes.set_axisbelow(True)
    return fig, axes


def _light(colour: str) -> str:
    return PALETTE[colour][0]


def _draw_dots(
    axes: Any, x: np.ndarray, y: np.ndarray, spread: np.ndarray, kinds: Sequence[Kind], sideways: bool
) -> None:
    """Dots with error bars, one legend entry a kind; `sideways` bars run along x."""
    for kind in dict.fromkeys(kinds):
        mine = np.array([each is kind for each in kinds])
        colour, bars = _light(kind.colour), np.nan_to_num(spread[mine])
        axes.errorbar(
            x[mine],
            y[mine],
            **{"xerr" if sideways else "yerr": bars},
            label=kind.name,
            fmt="x" if kind.shape == "cross" else "o",
            color=colour,
            markerfacecolor=_light("surface") if kind.shape == "ring" else colour,
            ecolor=(colour, 0.6),
            markersize=6 if sideways or kind.shape == "cross" else 4,
            markeredgewidth=1.8 if kind.shape == "cross" else 1.3,
            elinewidth=1.3,
            zorder=2 if kind.shape == "ring" else 3,
        )
    axes.figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)


def _ranking_figure(search: Search) -> Any:
    shown = [each for each in ranked(search) if math.isfinite(each.mean)]
    title = "Workflows and baselines, best first" + (" (95 % intervals)" if search.evaluated else "")
    fig, axes = _new_figure(9.5, 1.6 + 0.26 * len(shown), title)
    mean, stderr = (np.array([getattr(each, name) for each in shown]) for name in ("mean", "stderr"))
    near = mean >= lowest_shown(search)
    rows = np.arange(len(shown))
    kinds = [each.kind for each in shown]
    _draw_dots(
        axes, mean[near], rows[near], WIDE * stderr[near], [k for k, ok in zip(kinds, near, strict=True) if ok], True
    )
    axes.grid(visible=False, axis="y")
    left, right = axes.get_xlim()
    edge = left + 0.01 * (right - left)
    for row in rows[~near]:
        colour = _light(kinds[row].colour)
        axes.plot(edge, row, marker="<", color=colour, markersize=6)
        axes.annotate(fixed(mean[row]), (edge, row), (9, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_xlim(left, right)
    axes.set_yticks(rows, [each.name for each in shown], color=_light("ink"))
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlabel("environment reward an episode", color=_light("muted"))
    return fig


def _beliefs_figure(search: Search) -> Any:
    assert search.beliefs is not None
    order = search.beliefs.best_first
    fig, axes = _new_figure(9.5, 4.4, "Gaussian process over all 120 workflows (± one standard deviation)")
    kinds = [search.beliefs.kinds[k] for k in order]
    places = np.arange(1, len(order) + 1)
    _draw_dots(axes, places, search.beliefs.mean[order], search.beliefs.std[order], kinds, False)
    axes.set_xlim(-1, len(order) + 2)
    axes.set_xlabel("place by mean", color=_light("muted"))
    axes.set_ylabel("environment reward an episode", color=_light("muted"))
    return fig


def _places_figure(search: Search) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    assert search.beliefs is not None
    values, centre = position_values(search.beliefs.mean), float(search.beliefs.mean.mean())
    fig, axes = _new_figure(7.2, 4.6, "Mean GP value by type and place (blue: better)")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=10, colors=_light("ink"))
    colours = LinearSegmentedColormap.from_list("worse to better", [_light(BELOW), _light("surface"), _light(ABOVE)])
    gaps = {"edgecolors": _light("surface"), "linewidth": 3}
    axes.pcolormesh(STRONGEST * shades(values, centre), cmap=colours, vmin=-1, vmax=1, **gaps)
    axes.invert_yaxis()
    for (kind, place), value in np.ndenumerate(values):
        axes.text(place + 0.5, kind + 0.5, fixed(value), ha="center", va="center", color=_light("ink"))
    axes.set_xticks(np.arange(len(PLACES)) + 0.5, PLACES)
    axes.set_yticks(np.arange(len(TYPES)) + 0.5, TYPES)
    axes.set_xlabel("place in the workflow", color=_light("muted"))
    return fig


def _learning_figure(search: Search) -> Any:
    floor = far_below(search.updates["env_reward"])
    cut = f", above {short(floor, 2)}" if (search.updates["env_reward"] < floor).any() else ""
    fig, axes = _new_figure(9.5, 5.2, f"Environment reward while training{cut}; the best workflows in colour")
    hues = iter(HUES)
    for curve in curves(search, "env_reward"):
        y = above(floor, curve.y)
        if curve.quiet:
            axes.plot(curve.x, y, color=_light("axis"), linewidth=0.9, alpha=0.6, zorder=2)
        else:
            axes.plot(curve.x, y, color=_light(next(hues)), linewidth=2, zorder=3, label=curve.name)
    if search.highlighted:
        fig.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    axes.xaxis.set_major_formatter(lambda episodes, _: f"{episodes:,.0f}")
    axes.set_xlabel("episodes of this workflow", color=_light("muted"))
    axes.set_ylabel("environment reward an episode", color=_light("muted"))
    return fig
