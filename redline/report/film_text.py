"""Frames of a film in words, for a terminal."""

from __future__ import annotations

from rich.markup import escape

from redline.report.draw import fixed
from redline.report.film import Frame

BAR = 20
"""Characters of a bar that stands for certainty."""


def frame_lines(frame: Frame, total: float, last: int | None = None) -> list[str]:
    """A frame in words, with rich's markup; `last` is the number of the last one."""
    lines = [f"[bold]{escape(frame.title)}[/]" + (f" of {last}" if last and frame.reward is not None else "")]
    lines += [f"  {escape(who):<14} {escape(what)}" for who, what in frame.facts]
    if frame.reward is not None:
        why = ", ".join(f"{fixed(points)} {escape(words)}" for words, points in frame.reasons)
        lines.append(
            f"  {'reward':<14} {fixed(frame.reward)}{f' ({why})' if why else ''}, return so far {fixed(total)}"
        )
    for each in frame.likeliest:
        mark, bar = "*" if each.taken else " ", "█" * round(BAR * each.chance)
        lines.append(f"  {mark} {each.chance:6.1%} {bar:<{BAR}} {escape(each.name)}")
    return [*lines, *frame.text]
