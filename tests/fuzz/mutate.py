"""Inputs that are almost right: bytes and JSON, changed a little at random."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

USUAL_BYTES, MOST_BYTES, OFTEN_LONG = 4_000, 200_000, 0.05
NUMBERS = [
    "0", "-1", "--5", "1e400", "-0", "nan", "inf", "²", "٣", "9" * 5000, str(2**31),
    str(-(2**31) - 1), str(2**63), str(2**64),
    "99999999", "1.5", "1e-320", "0x10", "1_000", "+7",
]  # fmt: skip
WORDS = [
    "", "\0", "\n", "[/b]", "[bold]", "../..", "/dev/zero", "/etc/passwd", "\x1b[2J", "ü",
    "\ud800", "{}", "[]", "null", "%s", "a" * 300,
    "?", "&", "=", "?x=1", "external:os:system", "world:os:x", "true", "\u2028",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, -(2**31) - 1, 2**63, 2**64, 10**30, 0.5, 1e308, -1e308, float("nan"),
    float("inf"), "", "x", "0",
    [], {}, [[]], [None], {"": 0}, [0] * 50, "²", "\ud800",
]  # fmt: skip


def mutated_bytes(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """The bytes after one to four small changes. Few grow long: those take most of the time and find least."""
    usual = max(USUAL_BYTES, 2 * len(data))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(_CHANGES)(rng, data, others)
    return data if len(data) <= usual else data[: MOST_BYTES if rng.random() < OFTEN_LONG else usual]


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    first = rng.randint(0, len(data))
    return first, min(len(data), first + rng.choice((0, 1, 2, 4, 16, 100)))


def _flip(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    if not data:
        return b"\xff"
    k = rng.randrange(len(data))
    return data[:k] + bytes([data[k] ^ (1 << rng.randrange(8))]) + data[k + 1 :]


def _cut(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    first, last = _span(rng, data)
    return data[:first] + data[last:]


def _repeat(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    first, last = _span(rng, data)
    return data[:last] + data[first:last] * rng.choice((1, 2, 50, 2000)) + data[last:]


def _splice(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    other = rng.choice(others)
    first, last = _span(rng, other)
    k = rng.randint(0, len(data))
    return data[:k] + other[first:last] + data[k:]


def _word(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    first, last = _span(rng, data)
    return data[:first] + rng.choice(NUMBERS + WORDS).encode(errors="surrogatepass") + data[last:]


def _number(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Another number in the place of one that is there."""
    letters = np.frombuffer(data, np.uint8)
    digits = np.flatnonzero((letters >= 48) & (letters < 58))
    if not len(digits):
        return _word(rng, data, others)
    first = last = int(rng.choice(digits))
    while last < len(data) and 48 <= data[last] < 58:
        last += 1
    return data[:first] + rng.choice(NUMBERS).encode() + data[last:]


def _truncate(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))]


def _nest(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"<page>", b"</page>")))
    depth = rng.choice((10, 1000, 20_000))
    return opening * depth + data[:100] + closing * depth


_CHANGES = (_flip, _cut, _repeat, _splice, _word, _number, _number, _truncate, _nest)


def mutated_json(rng: random.Random, value: Any) -> Any:
    """The value after one to three changes somewhere within."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _change(rng, value)
    return value


def _change(rng: random.Random, value: Any) -> Any:
    if rng.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return rng.choice(VALUES)
    if isinstance(value, list):
        k = rng.randrange(len(value))
        kept = rng.choice(([], [value[k]] * rng.choice((2, 300)), [_change(rng, value[k])], [_change(rng, value[k])]))
        return value[:k] + kept + value[k + 1 :]
    key = rng.choice(list(value))
    changed = dict(value)
    if rng.random() < 0.15:
        del changed[key]
    elif rng.random() < 0.1:
        changed[rng.choice(WORDS)] = changed.pop(key)
    else:
        changed[key] = _change(rng, value[key])
    return changed
