"""Minimal pairs for models that have read little: `pairs.jsonl.gz`, one paradigm per line.

They are of BLiMP's kind, in words of the documentation of Python's standard library. Each paradigm breaks one rule: a
word is exchanged (morphology) or words are reordered (syntax). Both sentences have equally many words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.data.suites.packaged import read_packaged

SUITE = "pairs"
PAIRS = 300

PARADIGMS: Mapping[str, tuple[MinimalPair, ...]] = MappingProxyType(
    {
        row["paradigm"]: tuple(
            MinimalPair(good, bad, row["paradigm"], row["term"], row["field"])
            for good, bad in zip(row["good"], row["bad"], strict=True)
        )
        for row in read_packaged("pairs.jsonl.gz")
    }
)


def generated_pairs(count: int = PAIRS) -> PairSet:
    """Return the suite `pairs`: the first `count` pairs of each paradigm.

    >>> generated_pairs(1).pairs[0].good
    'The instances must read every type of the string.'
    """
    pairs = tuple(pair for each in PARADIGMS.values() for pair in each[:count])
    return PairSet(SUITE, f"generated pairs, {len(PARADIGMS)} paradigms of {count:,} each, seed 0", pairs)
