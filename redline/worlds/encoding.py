"""Encodings: how observations are stored, and the numbers that a network sees instead.

An env hands out observations in one form only, which is also the form they are stored in: as plain arrays, as the
number of a state, or as a few words of bits. An encoding knows that form and turns it into numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike

from redline.compiled.speed import inlined, kernel
from redline.errors import RedlineError

BITS = 63
"""Bits of a word that are filled; the sign is left alone."""
MOST = 127
"""The largest number that can be packed: decoded ones are int8."""


class Encoding(Protocol):
    """A form of stored observations."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one stored observation."""

    @property
    def dtype(self) -> np.dtype:
        """Of stored observations."""

    @property
    def size(self) -> int:
        """Numbers that a network sees of one observation."""

    @property
    def decoded(self) -> Encoding:
        """The form in which observations are handed out where nobody asks for the stored one."""

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """The numbers [n, size] of stored observations [n, *shape]; refused if they are in another form."""


@dataclass(frozen=True)
class Plain:
    """Arrays of numbers, seen as they are."""

    shape: tuple[int, ...]
    dtype: np.dtype
    names: tuple[str, ...] = ()
    high: tuple[float, ...] = ()
    """The largest value of each number, where all are 0 at least and that much at most."""
    unit: float = 1.0
    """What numbers are divided by before a network sees them."""

    @property
    def size(self) -> int:
        """Numbers in one observation."""
        return int(np.prod(self.shape))

    @property
    def decoded(self) -> Plain:
        """Itself."""
        return self

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """The same numbers, in rows."""
        require_form(self, stored)
        rows = stored.reshape(len(stored), -1)
        return rows if self.unit == 1.0 else rows * np.float32(1 / self.unit)


@dataclass(frozen=True)
class OneHot:
    """Numbers of states, seen as rows with a single 1."""

    count: int
    first: int
    dtype: np.dtype
    shape: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """States there are."""
        return self.count

    @property
    def decoded(self) -> OneHot:
        """Itself: nobody wants to be handed out rows of zeros."""
        return self

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """Rows float32 with a 1 in the place of the state."""
        require_form(self, stored)
        return np.eye(self.count, dtype=np.float32)[stored - self.first]


@dataclass(frozen=True)
class OneHots:
    """Several numbers of states, seen as a single 1 for each among zeros."""

    counts: tuple[int, ...]
    firsts: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """States there are, of all together."""
        return int(sum(self.counts))

    @property
    def decoded(self) -> OneHots:
        """Itself."""
        return self

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """Rows float32 with a 1 in the place of each state."""
        require_form(self, stored)
        places = stored.reshape(len(stored), -1) - np.array(self.firsts) + np.cumsum([0, *self.counts[:-1]])
        rows = np.zeros((len(stored), self.size), np.float32)
        np.put_along_axis(rows, places, 1.0, axis=1)
        return rows


@dataclass(frozen=True)
class Image:
    """Pictures, seen with their channels first and numbers from 0 to 1."""

    shape: tuple[int, ...]
    dtype: np.dtype
    picture: tuple[int, ...]
    """Channels, rows and columns."""
    channels_last: bool
    unit: float = 1.0

    @property
    def size(self) -> int:
        """Numbers in one picture."""
        return int(np.prod(self.picture))

    @property
    def decoded(self) -> Image:
        """Itself."""
        return self

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """The numbers float32 [n, size], channel after channel."""
        require_form(self, stored)
        pictures = stored.transpose(0, 3, 1, 2) if self.channels_last and stored.ndim == 4 else stored
        rows = pictures.reshape(len(stored), -1)
        return rows.astype(np.float32) if self.unit == 1.0 else rows * np.float32(1 / self.unit)


class Field(NamedTuple):
    """A small number in a word: `width` bits from bit `shift` on."""

    name: str
    word: int
    shift: int
    width: int = 1
    high: int = 0
    """Its largest value; 0 stands for all bits set."""


class Words:
    """Small whole numbers in the bits of 64-bit words. Equal observations are equal words, which are quickly told apart."""

    dtype = np.dtype(np.int64)

    def __init__(self, fields: Sequence[Field], constant: Sequence[tuple[str, int]] = ()) -> None:
        """`constant` numbers, with their names, follow the fields in every observation and take no room in the words."""
        self.names = (*(field.name for field in fields), *(name for name, _ in constant))
        self._word = np.array([field.word for field in fields])
        self._shift = np.array([field.shift for field in fields], np.int64)
        self._mask = np.array([(1 << field.width) - 1 for field in fields], np.int64)
        self._constant = np.array([value for _, value in constant], np.int8)
        self.shape = (int(self._word.max()) + 1,)
        self.places = np.stack([self._word, self._shift, self._mask], axis=1)
        """Where each field stands, int64 [fields, 3]: word, first bit, and all bits set. `put` writes there."""
        highest = [field.high or (1 << field.width) - 1 for field in fields]
        self.high = np.array([*highest, *(1 for _ in constant)], np.int8)

    @property
    def size(self) -> int:
        """Numbers in one observation."""
        return len(self.names)

    @property
    def decoded(self) -> Plain:
        """Small whole numbers, one after the other."""
        return Plain((self.size,), np.dtype(np.int8), self.names, tuple(self.high.tolist()))

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """The numbers int8 [n, size] of words int64 [n, words]."""
        require_form(self, stored)
        values = np.empty((len(stored), self.size), np.int8)
        _decode_words(stored, self._word, self._shift, self._mask, values)
        values[:, len(self._word) :] = self._constant
        return values


@inlined
def put(obs, i, places, k, value):
    """Writes number `k` of row `i` of stored observations, where `places` are those of a `Words`."""
    word, shift, mask = places[k, 0], places[k, 1], places[k, 2]
    obs[i, word] = (obs[i, word] & ~(mask << shift)) | ((value & mask) << shift)


@kernel
def _decode_words(words, word, shift, mask, values):
    for i in range(len(words)):
        for k in range(len(word)):
            values[i, k] = (words[i, word[k]] >> shift[k]) & mask[k]


def packed(numbers: Mapping[str, int]) -> Words:
    """The encoding of small whole numbers, given by name with the largest value of each, in as few words as hold them.

    Its `places` say where each number stands; rules write them with `put`.
    """
    fields: list[Field] = []
    word = shift = 0
    for name, high in numbers.items():
        if not 1 <= high <= MOST:
            raise RedlineError(
                f"The number {name!r} cannot be packed with {high} as its largest value: try 1 to {MOST}."
            )
        width = int(high).bit_length()
        if shift + width > BITS:
            word, shift = word + 1, 0
        fields.append(Field(name, word, shift, width, int(high)))
        shift += width
    if not fields:
        raise RedlineError("An observation without numbers shows nothing. Try packed({'clock': 100}).")
    return Words(fields)


def plain(shape: tuple[int, ...], dtype: DTypeLike, names: Sequence[str] = ()) -> Plain:
    """The encoding of arrays that need none."""
    return Plain(shape, np.dtype(dtype), tuple(names))


def require_form(encoding: Encoding, stored: np.ndarray) -> None:
    """Refuse observations that are stored in another form."""
    if stored.shape[1:] != encoding.shape or stored.dtype != encoding.dtype:
        raise RedlineError(
            f"Observations of shape {list(stored.shape[1:])} and type {stored.dtype} were given where each has shape "
            f"{list(encoding.shape)} and type {encoding.dtype}. Pass them as the env hands them out, one row each."
        )
