"""A report as one HTML file: its look, and the pieces it is put together from.

A page needs no network, and a script only to play films; it follows the light or dark mode of the reader, fits a phone,
and prints. Everything given to these functions is text and is escaped, except what is called `_html`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from redline.errors import RedlineError
from redline.files import reason, replace_file
from redline.report.draw import FONT, NOTHING, Drawing, escape, palette_css, show, to_svg
from redline.signature import unsigned

LOOKS_LIKE_A_NUMBER = re.compile(
    r"[~≈<>≤≥±+−-]?\s*\d[\d.,\s]*(e[+−-]?\d+)?\s*[kMGT]?\s*(±\s*[\d.,]+\s*)?[kMGT]?\s*(%|×|[a-zµ/]{1,12})?",
    re.IGNORECASE,
)

DESK_WIDTH, PHONE_WIDTH = 760, 358
"""Pixels that a chart takes."""

CSS = """
*, ::before, ::after { box-sizing: border-box; }
:root { color-scheme: light dark; }
body {
  margin: 0 auto; max-width: 960px; padding: 3rem 1.5rem 4rem;
  font: 1rem/1.55 FONT; color: var(--ink); background: var(--surface);
  -webkit-text-size-adjust: 100%; overflow-wrap: break-word;
}
header { margin-bottom: 2.5rem; }
header::before { content: ""; display: block; width: 3rem; height: 4px; background: var(--red); margin-bottom: 1rem; }
h1 { margin: 0; font-size: clamp(1.6rem, 1.2rem + 2vw, 2.2rem); line-height: 1.2; letter-spacing: -0.015em; }
header p { margin: 0.5rem 0 0; color: var(--muted); font-size: 1.05rem; }
section { margin-top: 2.5rem; padding-top: 1.5rem; border-top: 1px solid var(--grid); }
h2 { margin: 0 0 1.1rem; font-size: 1.25rem; line-height: 1.3; letter-spacing: -0.01em; }
h3 { margin: 2rem 0 -0.75rem; font-size: 1rem; }
a { color: var(--blue); }
figure { margin: 1.5rem 0; overflow-x: auto; }
figcaption { margin-top: 0.5rem; color: var(--muted); font-size: 0.875rem; }
.chart { display: block; width: 100%; min-width: 38rem; height: auto; }
.wide .chart { min-width: 54rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.75rem; margin: 0 0 1.5rem; }
.facts div { background: var(--soft); border-radius: 8px; padding: 0.9rem 1.1rem 1rem; }
.facts dt { color: var(--muted); font-size: 0.875rem; line-height: 1.35; }
.facts dd {
  margin: 0.2rem 0 0; font-size: 1.75rem; font-weight: 600; line-height: 1.2; letter-spacing: -0.015em;
}
details { margin: 1rem 0; }
summary { cursor: pointer; color: var(--muted); padding: 0.35rem 0; }
.scroll { overflow-x: auto; margin: 1.5rem 0; }
.scroll {  /* a shadow at the edge behind which there is more */
  background:
    linear-gradient(to right, var(--surface) 40%, transparent) left / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--surface) 40%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to right, var(--axis), transparent) left / 0.6rem 100% no-repeat,
    linear-gradient(to left, var(--axis), transparent) right / 0.6rem 100% no-repeat;
}
table { width: 100%; border-collapse: collapse; font-size: 0.9375rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.5rem 0.75rem; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--grid); }
th { color: var(--muted); font-size: 0.8125rem; font-weight: 600; border-bottom-color: var(--axis); }
.number { text-align: right; white-space: nowrap; }
.highlight td { background: var(--soft); font-weight: 600; }
.highlight td:first-child { box-shadow: inset 3px 0 var(--red); }
.note { margin: 1rem 0; padding: 0.1rem 0 0.1rem 1rem; border-left: 3px solid var(--grid); color: var(--muted); }
.note { font-size: 0.9375rem; max-width: 46rem; white-space: pre-line; }
.chart-title { margin: 0; font-weight: 600; line-height: 1.3; }
.for-phone { display: none; }
@media (max-width: 600px) {
  .for-phone { display: block; }
  .for-phone .chart, .for-phone .wide .chart { min-width: 0; }
  th, td { padding: 0.5rem; }
  .for-desk { display: none; }
  body { padding: 1.75rem 1rem 2.5rem; }
  .facts { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .facts dd { font-size: 1.35rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  figure, .scroll { overflow: visible; }
  .chart, .wide .chart { min-width: 0; }
  figure, .facts, .note, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, made by the functions below or written by hand."""

    heading: str
    body_html: str


FILM = '<div class="film"'
"""How a film begins, which needs a script to be played."""
ALONE = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The browser's leave: what is in the page, and nothing from anywhere else."""


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """A complete HTML document."""
    has_films = any(FILM in section.body_html for section in sections)
    below = "\n".join(f"<section>\n<h2>{escape(s.heading)}</h2>\n{s.body_html}\n</section>" for s in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{ALONE}">
<title>{escape(title)}</title>
<style>{palette_css()}{CSS.replace("FONT", FONT)}{_resource("film.css") if has_films else ""}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>{escape(subtitle)}</p>
</header>
<main>
{below}
</main>
{_script("film.js") if has_films else ""}
</body>
</html>
"""


def _resource(name: str) -> str:
    return files("redline.report").joinpath(name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    return f"<script>{_resource(name)}</script>"


def write_page(path: Path, title: str, subtitle: str, sections: Sequence[Section], hint: str = "") -> Path:
    """Write a page and return its path. Where it cannot be written, `hint` says what to try."""
    try:
        replace_file(path, page(title, subtitle, sections).encode())
    except OSError as error:
        raise RedlineError(f"The page cannot be written to {path}: {reason(error)}.{hint and f' {hint}'}") from error
    return path


def settings_table(settings: Mapping[str, object], defaults: Mapping[str, object] | None = None) -> str:
    """A row per setting, those inside others by a dotted name; those that differ from `defaults` first."""
    given = dict(flat_settings(unsigned(dict(settings))))
    if defaults is None:
        return table(["setting", "value"], [[name, str(value)] for name, value in given.items()])
    usual = dict(flat_settings(defaults))
    changed = {name: value for name, value in given.items() if not same_setting(value, usual.get(name))}
    rows = [[name, str(value), "" if name not in usual else str(usual[name])] for name, value in changed.items()]
    first = table(["setting", "value", "default"], rows) if rows else note("All settings have their default values.")
    rest = table(["setting", "value"], [[name, str(value)] for name, value in given.items() if name not in changed])
    return f"{first}<details><summary>Everything else, as by default</summary>{rest}</details>"


def same_setting(one: object, other: object) -> bool:
    """Whether two settings are the same, whether they were read from JSON or not."""
    return one == other or str(one).replace("(", "[").replace(")", "]") == str(other).replace("(", "[").replace(
        ")", "]"
    )


def flat_settings(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Settings inside others by a dotted name."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, highlight: int | None = None) -> str:
    """Rows under headers, with columns of numbers on the right. `highlight` is the index of the row to point out.

    Numbers are shown with thousands separators and at most two decimals. For any other form, pass a string.
    """
    rows = list(rows)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headers)
    kinds = [' class="number"' if _is_numeric(column) else "" for column in columns]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(headers, kinds, strict=True))
    body = ""
    for index, row in enumerate(rows):
        cells = "".join(f"<td{kind}>{escape(show(cell))}</td>" for cell, kind in zip(row, kinds, strict=True))
        body += f"<tr class='highlight'>{cells}</tr>\n" if index == highlight else f"<tr>{cells}</tr>\n"
    body = body or f'<tr><td colspan="{max(1, len(headers))}">no data yet</td></tr>\n'
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>'


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Headline numbers, each a label with a big figure: `facts([("Mean reward", "−18.2"), ("Steps", 10_000_000)])`."""
    cards = "\n".join(f"<div><dt>{escape(label)}</dt><dd>{escape(show(value))}</dd></div>" for label, value in pairs)
    return f'<dl class="facts">\n{cards}\n</dl>'


def note(text: str) -> str:
    """A quiet paragraph, for how something was measured and what to keep in mind."""
    return f'<p class="note">{escape(text)}</p>'


def figure(drawing: Drawing, caption: str = "", wide: bool = False) -> str:
    """A chart that keeps its text readable on a phone by scrolling sideways, with an optional caption."""
    kind = ' class="wide"' if wide else ""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure{kind}>\n{to_svg(drawing)}\n{below}</figure>"


def figure_for(draw: Callable[[int], Drawing], caption: str = "", wide: int = DESK_WIDTH) -> str:
    """A chart that is drawn twice, as wide as a desk and as wide as a phone, of which each screen shows its own."""
    desk, phone = draw(wide), draw(PHONE_WIDTH)
    title = f'<p class="chart-title">{escape(phone.title)}</p>'
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    small = title + to_svg(replace(phone, title=""))
    return f"<figure>\n{for_screen('desk', to_svg(desk))}\n{for_screen('phone', small)}\n{below}</figure>"


def for_screen(screen: str, content_html: str) -> str:
    """Content that only one kind of screen shows: `desk` or `phone`; any shows that of neither."""
    return f'<div class="for-{screen}">{content_html}</div>' if screen else content_html


def _is_numeric(column: Sequence[object]) -> bool:
    """Whether a column reads as numbers, also when they come with a unit, or as strings, or with some missing."""
    shown = [show(cell).strip() for cell in column]
    present = [words for words in shown if words not in ("", "-", NOTHING)]
    return bool(present) and all(LOOKS_LIKE_A_NUMBER.fullmatch(words) for words in present)
