"""The colours of everything drawn, for light and for dark."""

from __future__ import annotations

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


def hue(k: int) -> str:
    """The colour of the k-th of several things; after eight they come round again."""
    return HUES[k % len(HUES)]


def palette_css() -> str:
    """The colours as CSS variables of the page or image they are put in, for light and for dark."""
    light, dark = ("".join(f"--{name}:{colours[mode]};" for name, colours in PALETTE.items()) for mode in (0, 1))
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
