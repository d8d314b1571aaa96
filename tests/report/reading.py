"""Reads what was written: HTML as an outline of tags and texts, pages as a real browser shows them."""

from __future__ import annotations

import shutil
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(not BROWSER, reason="needs chromium or google-chrome on PATH")
QUIET = "--no-first-run --disable-background-networking --disable-component-update --disable-sync --disable-quic"


class Outline(HTMLParser):
    """Reads HTML, insists that tags are balanced, and keeps what a reader sees, as (innermost tag, text)."""

    VOID = {"meta", "br", "hr", "img", "link"}

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def inside(self, tag: str) -> list[str]:
        return [text for where, text in self.texts if where == tag]

    def classes(self, tag: str) -> list[str | None]:
        return [attributes.get("class") for name, attributes in self.tags if name == tag]


def browse(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What a browser without a screen says about a page."""
    command = [BROWSER or "", "--headless", "--no-sandbox", "--disable-gpu", *QUIET.split(), *options]
    command += [f"--user-data-dir={file.parent}/browser", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def pixels(png: Path) -> bytes:
    """The filtered pixels of a picture: all alike where nothing was drawn."""
    data, at, packed = png.read_bytes(), 8, b""
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        packed += data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += length + 12
    return zlib.decompress(packed)
