"""Minimal pairs of our own, made from a small grammar, for models that have read little.

BLiMP's sentences are about people in everyday life, in words that a model trained on technical prose has never met: it
then fails on the words, and nothing is learned of its grammar. The pairs made here are of BLiMP's kind, in words that
the documentation of Python's standard library uses all the time, which is what the small models of this package read.

Each paradigm breaks one rule in one way: either one word is exchanged for another, or the same words stand in another
order. Draws are decided by the seed, no pair comes twice, and both sentences have equally many words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Literal

from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.data.suites.templates import TABLES, drawn, filled, sentence
from layerwise.errors import DataError, near_matches

SUITE = "pairs"
PAIRS = 300
"""Pairs of each paradigm, unless another number is asked for."""

WORDS: Mapping[str, Sequence[str]] = TABLES["words"][SUITE]
"""The words by their part of speech, the forms of one beside each other (`file/files`)."""


@dataclass(frozen=True, slots=True)
class Paradigm:
    """One way of breaking one rule: what is drawn, and the good and the bad sentence that are filled with it."""

    term: str
    draws: str
    good: str
    bad: str

    @property
    def difference(self) -> Literal["word", "order"]:
        """How the sentences differ: in one word, or in the order of the same words."""
        return "order" if sorted(self.good.split()) == sorted(self.bad.split()) else "word"

    @property
    def field(self) -> str:
        """The part of grammar."""
        return {"word": "morphology", "order": "syntax"}[self.difference]


PARADIGMS: Mapping[str, Paradigm] = MappingProxyType({uid: Paradigm(**each) for uid, each in TABLES[SUITE].items()})
"""Every paradigm by its UID."""


def paradigm_pairs(uid: str, count: int = PAIRS, seed: int = 0) -> tuple[MinimalPair, ...]:
    """`count` different pairs of one paradigm; the same arguments give the same pairs on every machine.

    A longer list begins with the shorter one. Raises `DataError` for an unknown paradigm.

    >>> pair = paradigm_pairs("article_noun", 1)[0]
    >>> len(pair.good.split()) == len(pair.bad.split())
    True
    """
    if uid not in PARADIGMS:
        raise DataError(f"unknown paradigm {uid!r}; {near_matches(uid, PARADIGMS)}")
    if count < 1:
        raise DataError(f"{count} pairs of {uid!r} were asked for; ask for at least 1")
    paradigm, random = PARADIGMS[uid], Random(f"{uid}/{seed}")
    pairs: dict[MinimalPair, None] = {}
    while len(pairs) < count:
        words = drawn(paradigm.draws, WORDS, random)
        good, bad = (sentence(filled(text, words)) for text in (paradigm.good, paradigm.bad))
        pairs.setdefault(MinimalPair(good, bad, uid, paradigm.term, paradigm.field))
    return tuple(pairs)


def generated_pairs(count: int = PAIRS, seed: int = 0) -> PairSet:
    """The suite `pairs`: `count` pairs of each of the `PARADIGMS`."""
    pairs = tuple(pair for uid in PARADIGMS for pair in paradigm_pairs(uid, count, seed))
    origin = f"generated pairs, {len(PARADIGMS)} paradigms of {count:,} each, seed {seed}"
    return PairSet(SUITE, origin, pairs)
