"""The drawing kit: every shape, on SVG and on PNG."""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.report.charts.line_chart import Mark, Series, line_chart
from redline.report.draw import (
    PALETTE,
    Area,
    Box,
    Circle,
    Drawing,
    Group,
    Polyline,
    Shape,
    Stroke,
    Text,
    axis_of,
    dots_of,
    no_data,
    to_svg,
    write_picture,
)
from redline.report.draw.bitmap import decode_png, encode_png
from redline.report.draw.pictures import SCALE, to_png
from redline.report.draw.svg import MARGIN

SVG = "{http://www.w3.org/2000/svg}"
SQUARE = ((10, 40), (30, 40), (30, 60), (10, 60))
EVERY_SHAPE: tuple[Shape, ...] = (
    Box(5, 30, 20, 10, "blue"),
    Box(5, 45, 20, 10, "red", 0.5, outlined=True, radius=3, line_width=2),
    Circle(50, 40, 8, "green"),
    Circle(50, 60, 8, "violet", outlined=True, line_width=3),
    Stroke(5, 80, 95, 80, "axis", 2, (5, 4)),
    Polyline([[(5, 90), (50, 85), (95, 95)], [(5, 99), (95, 99)]], "pink", 1.5, 0.6, round_ends=True),
    Area([SQUARE], "gold", 0.3),
    Area([((60.3, 70.1), (90.7, 71.3), (80.2, 99.9))], "ink"),
    Text(50, 75, "µ → −1.5 ± 2", "muted", 10, "middle", 600),
    Group([Box(70, 30, 20, 20, "sky")], "a tip", opacity=0.5, crisp=True),
)


def on_paper(*shapes: Shape, width: float = 100, height: float = 110) -> np.ndarray:
    """The pixels of a drawing without a title, uint8 [y, x, 3]."""
    return dots_of(Drawing("", width, height, shapes))


def pixel(picture: np.ndarray, x: float, y: float) -> tuple[int, ...]:
    column, row = (int((place + MARGIN) * SCALE) for place in (x, y))
    return tuple(picture[row, column].tolist())


def light(colour: str, opacity: float = 1.0) -> tuple[int, ...]:
    """A colour of the palette on white."""
    parts = bytes.fromhex(PALETTE[colour][0].removeprefix("#"))
    return tuple(255 - opacity * (255 - part) for part in parts)


def near(first: tuple[int, ...], second: tuple[float, ...]) -> bool:
    return all(abs(a - b) <= 2 for a, b in zip(first, second, strict=True))


def rich_chart() -> Drawing:
    curves = [Series(f"run {k}", range(30), np.sin(np.arange(30) + k)) for k in range(10)]
    band = Series("band", range(30), np.zeros(30), np.full(30, -0.5), np.full(30, 0.5))
    return line_chart([*curves, band], title="Ten & one", x_label="x", y_label="y", marks=[Mark(0.2, "goal")])


def test_a_filled_shape_covers_its_place_and_nothing_else():
    for shape in (Box(40, 40, 20, 20, "blue"), Circle(50, 50, 10, "blue"), Area([SQUARE], "blue")):
        picture = on_paper(shape)
        inside = (20, 50) if isinstance(shape, Area) else (50, 50)
        assert pixel(picture, *inside) == light("blue")
        assert pixel(picture, 80, 80) == light("surface")


def test_an_outline_leaves_the_inside_free():
    for shape in (
        Box(40, 40, 20, 20, "red", outlined=True, line_width=4),
        Circle(50, 50, 10, "red", outlined=True, line_width=4),
    ):
        picture = on_paper(shape)
        assert pixel(picture, 50, 50) == light("surface")
        assert pixel(picture, 50, 39.5) == pixel(picture, 60, 50) == light("red")


def test_edges_are_exact_to_a_quarter_of_a_pixel():
    picture = on_paper(Box(40.25, 40, 9.5, 20, "ink"))
    row = picture[int((50 + MARGIN) * SCALE), :, 0]
    covered = (255 - row.astype(float)).sum() / (255 - light("ink")[0]) / SCALE
    assert covered == pytest.approx(9.5, abs=0.02)


def test_opacity_mixes_with_what_lies_below_also_in_a_group():
    for faint in (Box(40, 40, 20, 20, "blue", 0.5), Group([Box(40, 40, 20, 20, "blue")], opacity=0.5)):
        assert near(pixel(on_paper(faint), 50, 50), light("blue", 0.5))
    twice = Group([Box(40, 40, 20, 20, "blue", 0.5)], opacity=0.5)
    assert near(pixel(on_paper(twice), 50, 50), light("blue", 0.25))


def test_a_faint_line_is_no_darker_where_it_crosses_itself():
    crossing = Polyline([[(30, 30), (70, 70), (70, 30), (30, 70)]], "ink", 6, 0.5)
    picture = on_paper(crossing)
    assert near(pixel(picture, 50, 50), light("ink", 0.5))
    assert picture.min() >= min(light("ink", 0.5)) - 2


def test_a_dashed_line_has_its_dashes():
    row = on_paper(Stroke(10, 50, 60, 50, "ink", 2, (7, 3)))[int((50 + MARGIN) * SCALE)]
    starts = np.flatnonzero(np.diff((row[:, 0] < 128).astype(int)) == 1) + 1
    assert (starts / SCALE - MARGIN).tolist() == pytest.approx([10, 20, 30, 40, 50], abs=0.5)


def test_later_shapes_lie_on_top():
    picture = on_paper(Box(40, 40, 20, 20, "blue"), Box(45, 45, 10, 10, "red"))
    assert (pixel(picture, 50, 50), pixel(picture, 42, 42)) == (light("red"), light("blue"))


@pytest.mark.parametrize("anchor", ["start", "middle", "end"])
def test_words_stand_where_their_anchor_says(anchor):
    picture = on_paper(Text(50, 60, "HHHH", "ink", 12, anchor))
    rows, columns = np.nonzero(picture[..., 0] < 128)
    left, right = columns.min() / SCALE - MARGIN, (columns.max() + 1) / SCALE - MARGIN
    assert rows.max() / SCALE - MARGIN == pytest.approx(60, abs=1)
    assert {"start": left, "middle": (left + right) / 2, "end": right}[anchor] == pytest.approx(50, abs=1.5)


@pytest.mark.parametrize("words", ["two\nlines", "\udcff\x00", "中文", "a" * 500, ""])
def test_any_words_can_be_drawn(words):
    drawing = Drawing(words, 100, 110, [Text(10, 50, words, room=80)])
    assert to_png(drawing).startswith(b"\x89PNG")
    ElementTree.fromstring(to_svg(drawing))


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4])
def test_every_filter_of_a_png_is_read(kind):
    """Dots 1 and 2 of row 2, as each filter writes them after the rows 10, 20 and 30, 60."""
    second = {0: [30, 60], 1: [30, 30], 2: [20, 40], 3: [25, 35], 4: [20, 30]}[kind]
    grey = [[0, *[10] * 3, *[20] * 3], [kind, *[second[0]] * 3, *[second[1]] * 3]]
    plain = encode_png(np.zeros((2, 2, 3), np.uint8))
    packed = zlib.compress(np.array(grey, np.uint8).tobytes())
    size, start = len(packed), plain.index(b"IDAT") - 4
    data = plain[:start] + struct.pack(">I", size) + b"IDAT" + packed + bytes(4)
    assert decode_png(data)[..., 0].tolist() == [[10, 20], [30, 60]]


def test_a_png_is_read_as_it_was_written():
    dots = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    assert (decode_png(encode_png(dots)) == dots).all()


def test_every_shape_is_in_the_svg():
    svg = ElementTree.fromstring(to_svg(Drawing("Title", 100, 110, EVERY_SHAPE)))
    tags = [element.tag.removeprefix(SVG) for element in svg.iter()]
    assert {tag: tags.count(tag) for tag in ("rect", "circle", "line", "path", "text", "g", "title")} == {
        "rect": 3, "circle": 2, "line": 1, "path": 3, "text": 2, "g": 1, "title": 1,
    }  # fmt: skip
    assert svg.find(f"{SVG}g").attrib == {"shape-rendering": "crispEdges", "opacity": "0.5"}


def test_svg_and_png_show_the_same_chart():
    curves = [Series(f"run {k}", range(5), np.full(5, k)) for k in range(8)]
    drawing = line_chart(curves, title="Eight", x_label="x", y_label="y")
    picture = dots_of(drawing)
    last_points = list(ElementTree.fromstring(to_svg(drawing)).iter(f"{SVG}circle"))
    assert len(last_points) == 8
    for circle in last_points:
        colour = circle.get("fill").removeprefix("var(--").partition(",")[0]
        assert near(pixel(picture, float(circle.get("cx")), float(circle.get("cy"))), light(colour))


def test_a_picture_is_written_as_its_path_says(tmp_path: Path):
    write_picture(rich_chart(), tmp_path / "chart.svg")
    write_picture(rich_chart(), tmp_path / "chart.png")
    write_picture(rich_chart(), tmp_path / "chart", ".svg")
    assert (tmp_path / "chart.svg").read_bytes() == (tmp_path / "chart").read_bytes()
    assert "--blue:" in (tmp_path / "chart.svg").read_text()
    height, width, _ = decode_png((tmp_path / "chart.png").read_bytes()).shape
    assert (width, height) == ((760 + 2 * MARGIN) * SCALE, (340 + 2 * MARGIN) * SCALE)


def test_a_picture_of_another_kind_is_refused_in_one_line(tmp_path: Path):
    with pytest.raises(RedlineError, match=r"A picture is written as \.svg or \.png, not as 'chart\.pdf'") as error:
        write_picture(rich_chart(), tmp_path / "chart.pdf")
    assert str(error.value).endswith("Try chart.svg.")


def test_a_picture_that_cannot_be_written_says_why(tmp_path: Path):
    for name in ("chart.svg", "chart.png"):
        with pytest.raises(RedlineError, match=r"The picture cannot be written to .*No such file"):
            write_picture(rich_chart(), tmp_path / "nowhere" / name)


def test_only_a_png_needs_resvg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    write_picture(rich_chart(), tmp_path / "chart.svg")
    with pytest.raises(RedlineError, match=r"PNG files need resvg-py: pip install 'redline\[plot\]', or in a clone"):
        write_picture(rich_chart(), tmp_path / "chart.png")
    assert not (tmp_path / "chart.png").exists()


def test_an_axis_maps_one_value_and_many_alike():
    axis = axis_of([0.0, 10.0], 100, 200)
    assert (axis.at(0), axis.at(5), axis.at(10)) == (100, 150, 200)
    assert axis.each([0, 5, 10]).tolist() == [100, 150, 200]
    log = axis_of([1.0, 100.0], 0, 100, log=True)
    assert log.each([1, 10, 100]).tolist() == [log.at(1), log.at(10), log.at(100)] == [0, 50, 100]


def test_an_empty_frame_says_what_is_missing():
    assert "nothing yet" in to_svg(no_data("Title", 100, 140, "nothing yet"))
