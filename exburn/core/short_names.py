"""Names cut to a width, so that those of one model can still be told apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from exburn.core.printing import shorten

_WORD = re.compile(r"[_/.\s-]*[^_/.\s-]*[_/.\s-]*")
_BETWEEN = "_/. -"
_PROBE = 14  # columns with which the best place of a cut is looked for
_TAILS = (0.5, 0.75, 1.0, 0.25, 0.0)
_MOST_NAMES = 2_000  # of which the place of a cut is learned


class ShortNames:
    """Cuts names: words that most of them share go first, then letters."""

    def __init__(self, names: Sequence[str]):
        distinct = list(dict.fromkeys(names))
        self._count = len(distinct)
        self._uses = Counter(w for n in distinct for w in {_bare(p) for p in _words(n)})
        sample = distinct[:_MOST_NAMES]

        def told_apart(tail: float) -> int:
            return len({self._cut(name, _PROBE, tail) for name in sample})

        self._tail = max(_TAILS, key=told_apart)

    def cut(self, name: str, width: int) -> str:
        """The name in at most so many columns of a terminal."""
        return self._cut(name, width, self._tail)

    def _cut(self, name: str, width: int, tail: float) -> str:
        if len(name) <= width and shorten(name, width) == name:
            return name
        words = _words(name)
        last = len(words) - 1
        stay = set(range(len(words)))
        # The most common word first; of equal ones those within, then the last.
        order = sorted(
            stay, key=lambda i: (-self._uses[_bare(words[i])], i in (0, last))
        )
        text = name
        for i in order:
            rare = self._uses[_bare(words[i])] <= self._count / 2
            if rare or len(stay) == 1 or shorten(text, width) == text:
                break
            stay.discard(i)
            text = _join(words, stay)
        return shorten(text, width, tail=tail)


def _words(name: str) -> list[str]:
    return [word for word in _WORD.findall(name) if word]


def _bare(word: str) -> str:
    return word.strip(_BETWEEN)


def _join(words: list[str], stay: set[int]) -> str:
    """The words that stay, with one "…" for those between."""
    text = ""
    for i, word in enumerate(words):
        if i in stay:
            text += word.lstrip(_BETWEEN) if text.endswith("…") else word
        elif not text.endswith("…"):
            text = text.rstrip(_BETWEEN) + "…"
    return text
