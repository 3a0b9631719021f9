"""Which mask follows which: guessed by what came before, on the device and beside it.

A form tells the next mask once a token is known to the host. Texts of forms repeat
themselves, though: in a string the mask stays, and the parts of an object come again.
So the host gives masks places in a table, notes which place followed which with which
token, and the device goes on by this. What it guesses is no more than that: the host
compares each mask with the form's own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: The place of a mask that allows all, which nothing follows.
EVERYTHING = 0
_SIZE = 512  # places, and links that are no usual ones
_DEPTH = 8  # masks before it that a place knows: objects' fields end alike
_FEW = 128  # tokens: of more, as in a string, it counts no repetitions
_FROM, _TOKEN, _TO, _USUAL = range(4)
_MOST_KEPT = 4  # forms


class MaskGuesses:
    """What the host knows of masks that follow one another.

    A place is a mask and the unlike ones before it. The place that mostly follows
    another is its usual one; links are what follows by other tokens.

    Args:
        rows: Texts that share it.
        words: Numbers of a mask.
        exact: Whether a token may be another one where a mask allows more than the
            form, though the form allows it.

    Attributes:
        masks: ``uint32[size, words]``: those of the places.
        links: ``int32[4, size]``: from, token, to, and the usual place behind each.
        changes: Grows with each change of the links.

    Example:
        >>> guesses = MaskGuesses(rows=1, words=1, exact=True)
        >>> string, comma = np.uint32([[6]]), np.uint32([[8]])
        >>> first = guesses.begin(string)
        >>> second, was_guessed = guesses.note(first, [5], comma)
        >>> guesses.after(first, [5]) == second, guesses.suffice(first, comma)
        (array([ True]), array([False]))
    """

    def __init__(self, rows: int, words: int, exact: bool):
        self._rows, self._exact = rows, exact
        self.size, self.changes = max(_SIZE, 4 * rows), 0
        self.masks = np.empty((self.size, words), np.uint32)
        self.masks[EVERYTHING] = 2**32 - 1
        self._counts = np.full(self.size, 32 * words)  # tokens of each
        self.links = np.empty((4, self.size), np.int32)
        self.clear()

    def clear(self) -> None:
        """Forgets all places."""
        self._numbers: dict[bytes, int] = {}  # of masks
        self._places: dict[tuple[int, ...], int] = {}
        self._pasts: list[tuple[int, ...]] = [()]
        self._votes = np.zeros(self.size, int)
        self._columns: dict[tuple[int, int], int] = {}
        self.links[:] = -1
        self.links[_USUAL] = np.arange(self.size)
        self.changes += 1

    def __len__(self) -> int:
        """Places that it has."""
        return len(self._pasts)

    @property
    def is_full(self) -> bool:
        """Whether there may be no room for what comes."""
        most = self.size - self._rows
        return len(self._pasts) > most or len(self._columns) > most

    def begin(self, masks: np.ndarray) -> np.ndarray:
        """The places of masks of which no past is known.

        Args:
            masks: ``[rows, words]``.
        """
        return np.array([self._place(EVERYTHING, mask) for mask in masks], int)

    def note(
        self, before: np.ndarray, tokens: Any, masks: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The places of masks that follow others by a token, which it remembers.

        Args:
            before, tokens: ``[rows]``.
            masks: ``[rows, words]``.

        Returns:
            Places, of masks which suffice where such ones were guessed; and where they
            were.
        """
        places = self.after(before, tokens)
        were_guessed = self.suffice(places, masks)
        self._votes[before[were_guessed]] += 1
        for row in np.flatnonzero(~were_guessed):
            last, place = int(before[row]), self._place(int(before[row]), masks[row])
            places[row] = place
            if EVERYTHING not in (last, place):
                self._link(last, int(tokens[row]), place)
        return places, were_guessed

    def after(self, places: np.ndarray, tokens: Any) -> np.ndarray:
        """``[rows]``: the places that are guessed to follow."""
        behind = self.links[_USUAL, places].astype(int)
        for row, link in enumerate(zip(places.tolist(), tokens, strict=True)):
            if link in self._columns:
                behind[row] = self.links[_TO, self._columns[link]]
        return behind

    def suffice(self, places: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """``[rows]``: whether tokens that come under these places' masks are right.

        A likeliest token that the form allows is so among more than these, too, as it
        is where all of them have got random numbers. Of a mask that allows more by
        an eighth, too many tokens would be wrong.
        """
        guessed = self.masks[places]
        if self._exact:
            return (guessed == masks).all(axis=1)
        allowed = np.bitwise_count(masks).sum(axis=1)
        near = 8 * allowed >= 7 * self._counts[places]
        return near & ~(masks & ~guessed).any(axis=1)

    def _link(self, before: int, token: int, place: int) -> None:
        self.changes += 1
        if self._votes[before] <= 0:
            self.links[_USUAL, before], self._votes[before] = place, 1
            return
        self._votes[before] -= 1
        column = self._columns.get((before, token), len(self._columns))
        if column < self.size:
            self._columns[before, token] = column
            self.links[:_USUAL, column] = before, token, place

    def _place(self, before: int, mask: np.ndarray) -> int:
        number = self._numbers.setdefault(mask.tobytes(), len(self._numbers))
        count, past = int(np.bitwise_count(mask).sum()), self._pasts[before]
        if past[-1:] != (number,) or count <= _FEW:
            past = (*past, number)[-_DEPTH:]
        place = self._places.get(past, len(self._pasts))
        if place == self.size:
            return EVERYTHING
        if place == len(self._pasts):
            self._places[past] = place
            self._pasts.append(past)
            self.masks[place] = mask
            self._counts[place] = count
        return place


class GuessStore:
    """The guesses of the last forms, each for one that writes at a time."""

    def __init__(self):
        self._kept: OrderedDict[tuple, MaskGuesses] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: tuple) -> MaskGuesses:
        """Those of a form, which nobody else has then.

        Args:
            key: Form, rows, words, and ``exact``, as of the guesses.
        """
        with self._lock:
            guesses = self._kept.pop(key, None)
        return guesses or MaskGuesses(*key[1:])

    def put_back(self, key: tuple, guesses: MaskGuesses) -> None:
        """Keeps them for who is next."""
        with self._lock:
            self._kept[key] = guesses
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)


def guess_place(links: jax.Array, places: jax.Array, token: jax.Array) -> jax.Array:
    """``[rows]``: the places that follow, as ``MaskGuesses.after``.

    Args:
        links: As of ``MaskGuesses``.
        places, token: ``[rows]``.
    """
    same = links[_FROM] == places[:, None]
    same &= links[_TOKEN] == token[:, None]
    usual = links[_USUAL][places]
    return jnp.where(same.any(axis=1), links[_TO][same.argmax(axis=1)], usual)
