"""A report as one HTML file: its look, and the pieces it is put together from.

A page needs no script and no network, follows the light or dark mode of the reader, and prints. Everything given to
these functions is text and is escaped, except what is called `_html`.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from unicodedata import east_asian_width

# Name: (on light, on dark). Every hue has a contrast of at least 3 with its surface, and stays apart from the others
# for colour-blind readers.
PALETTE = {
    "blue": ("#137af7", "#3f7cf5"),
    "orange": ("#bb4f03", "#ea7e29"),
    "green": ("#169f82", "#2fc79a"),
    "violet": ("#7a3fc0", "#af92f2"),
    "pink": ("#aa3577", "#ca679a"),
    "gold": ("#b48c21", "#debb36"),
    "red": ("#af112d", "#e14953"),
    "sky": ("#3a9bd6", "#7cc8f5"),
    "ink": ("#1b1e25", "#eceef2"),
    "muted": ("#5c6470", "#a0a8b5"),
    "axis": ("#a2aab6", "#626b79"),
    "grid": ("#e3e6eb", "#2c313a"),
    "soft": ("#f4f6f9", "#1f232b"),
    "surface": ("#ffffff", "#16181d"),
}
HUES = tuple(PALETTE)[:8]
FONT = "-apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
LOOKS_LIKE_A_NUMBER = re.compile(
    r"[~≈<>≤≥±+−-]?\s*\d[\d.,\s]*(e[+−-]?\d+)?\s*[kMGT]?\s*(±\s*[\d.,]+\s*)?[kMGT]?\s*(%|×|[a-zµ/]{1,12})?",
    re.IGNORECASE,
)
NOTHING = "–"

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
.scroll { overflow-x: auto; margin: 1.5rem 0; }
table { width: 100%; border-collapse: collapse; font-size: 0.9375rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.5rem 0.75rem; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--grid); }
th { color: var(--muted); font-size: 0.8125rem; font-weight: 600; border-bottom-color: var(--axis); }
.number { text-align: right; white-space: nowrap; }
.highlight td { background: var(--soft); font-weight: 600; }
.highlight td:first-child { box-shadow: inset 3px 0 var(--red); }
.note { margin: 1rem 0; padding: 0.1rem 0 0.1rem 1rem; border-left: 3px solid var(--grid); color: var(--muted); }
.note { font-size: 0.9375rem; max-width: 46rem; white-space: pre-line; }
@media (max-width: 600px) {
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


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """A complete HTML document."""
    below = "\n".join(f"<section>\n<h2>{escape(s.heading)}</h2>\n{s.body_html}\n</section>" for s in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{palette_css()}{CSS.replace("FONT", FONT)}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>{escape(subtitle)}</p>
</header>
<main>
{below}
</main>
</body>
</html>
"""


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
        cells = "".join(f"<td{kind}>{escape(_show(cell))}</td>" for cell, kind in zip(row, kinds, strict=True))
        body += f"<tr class='highlight'>{cells}</tr>\n" if index == highlight else f"<tr>{cells}</tr>\n"
    body = body or f'<tr><td colspan="{max(1, len(headers))}">no data yet</td></tr>\n'
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>'


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Headline numbers, each a label with a big figure: `facts([("Mean reward", "−18.2"), ("Steps", 10_000_000)])`."""
    cards = "\n".join(f"<div><dt>{escape(label)}</dt><dd>{escape(_show(value))}</dd></div>" for label, value in pairs)
    return f'<dl class="facts">\n{cards}\n</dl>'


def note(text: str) -> str:
    """A quiet paragraph, for how something was measured and what to keep in mind."""
    return f'<p class="note">{escape(text)}</p>'


def figure(chart_html: str, caption: str = "") -> str:
    """A chart that keeps its text readable on a phone by scrolling sideways, with an optional caption."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>\n{chart_html}\n{below}</figure>"


def palette_css() -> str:
    """The colours as CSS variables of the page or image they are put in, for light and for dark."""
    light, dark = ("".join(f"--{name}:{colours[mode]};" for name, colours in PALETTE.items()) for mode in (0, 1))
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def escape(words: object) -> str:
    """Text that is safe inside HTML and SVG, attributes included."""
    return html.escape(NOT_XML.sub("\ufffd", str(words)))


def short(value: float, digits: int = 3) -> str:
    """A number in few characters: −18.2, 3,100, 10 k, 2.5 M."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else NOTHING
    mantissa, exponent = f"{abs(value):.{digits - 1}e}".split("e")  # rounded here: 999,999 is 1 M and not 1000 k
    power = int(exponent) // 3 if int(exponent) >= 4 else 0
    if power > 4 or int(exponent) < -4:
        number = f"{_trim(mantissa)}e{int(exponent)}"
    else:
        decimals = max(0, digits - 1 - int(exponent) + 3 * power)
        number = _trim(f"{float(f'{mantissa}e{exponent}') / 1000**power:,.{decimals}f}")
        number += ("", " k", " M", " G", " T")[power]
    return f"−{number}" if value < 0 else number


def percent(share: float) -> str:
    """A share of 1 as a percentage, with a decimal where it is small."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{share:.0%}".replace("%", " %") if share >= 0.0995 else f"{share:.1%}".replace("%", " %")


def duration(seconds: float) -> str:
    """A time in the unit that suits it: 1.25 s, 12.3 ms, 79 µs."""
    scale, unit = time_unit(seconds)
    return f"{short(seconds * scale)} {unit}"


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit that suits a time, after how many of it make a second."""
    size = abs(seconds)
    return (1.0, "s") if size >= 0.9995 or not size else (1e3, "ms") if size >= 0.9995e-3 else (1e6, "µs")


def text_width(words: str, size: float = 12) -> float:
    """Roughly how many pixels the words take. A little too many is better than too few."""
    narrow, wide = "ijltfrI.,:;'|!()[]/ ", "mwMW%@…"
    return size * sum(
        0.33 if letter in narrow else 0.95 if letter in wide or east_asian_width(letter) in "WF" else 0.57
        for letter in words
    )


def fit(words: str, room: float, size: float = 12) -> str:
    """The words, with the end cut off where they would take more than `room` pixels."""
    while words and text_width(words, size) > room:
        words = words[:-2] + "…" if len(words) > 2 else ""
    return words


def paint(colour: str) -> str:
    """A name of the palette as a CSS colour that changes with the mode; anything else as it is."""
    return f"var(--{colour}, {PALETTE[colour][0]})" if colour in PALETTE else colour


def _trim(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _show(cell: object) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, bool) or not isinstance(cell, Real):
        return str(cell)
    if isinstance(cell, Integral):
        return f"{int(cell):,}".replace("-", "−")
    value = float(cell)
    if not math.isfinite(value) or 0 < abs(value) < 0.01:
        return short(value)
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}").replace("-", "−")


def _is_numeric(column: Sequence[object]) -> bool:
    """Whether a column reads as numbers, also when they come with a unit, or as strings, or with some missing."""
    shown = [_show(cell).strip() for cell in column]
    present = [words for words in shown if words not in ("", "-", NOTHING)]
    return bool(present) and all(LOOKS_LIKE_A_NUMBER.fullmatch(words) for words in present)
