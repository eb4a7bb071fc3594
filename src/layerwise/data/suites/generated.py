"""Bundled suites, stored as JSON lines.

    pairs.jsonl.gz            minimal pairs like BLiMP's with words of Python's documentation, one paradigm per line:
                              a word is exchanged (morphology) or two words are swapped (syntax)
    mixed_signals.jsonl.gz    tasks like those of MSGS (Warstadt et al. 2020), one set of a task per line

A task `control FEATURE` trains and tests one feature. A task `ambiguous LINGUISTIC_SURFACE` trains on examples whose
label follows from either feature, and tests on examples where the features disagree. Matthews' correlation is +1 if the
model uses the linguistic feature, and -1 if it uses the surface feature. Test sets use other words than training sets.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from layerwise.data.suites.classification import ClassificationTask, LabeledText
from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet

SUITE = "pairs"
PAIRS = 300


def _read(name: str) -> list[dict[str, Any]]:
    text = gzip.decompress(files(__package__).joinpath(name).read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


PARADIGMS: Mapping[str, tuple[MinimalPair, ...]] = MappingProxyType(
    {
        row["paradigm"]: tuple(
            MinimalPair(good, bad, row["paradigm"], row["term"], row["field"])
            for good, bad in zip(row["good"], row["bad"], strict=True)
        )
        for row in _read("pairs.jsonl.gz")
    }
)


def generate_pairs(count: int = PAIRS) -> PairSet:
    """Return the bundled suite `pairs`, which was generated: the first `count` pairs of each paradigm.

    >>> generate_pairs(1).pairs[0].good
    'The instances must read every type of the string.'
    """
    pairs = tuple(pair for each in PARADIGMS.values() for pair in each[:count])
    return PairSet(SUITE, f"generated pairs, {len(PARADIGMS)} paradigms of {count:,} each, seed 0", pairs)


@cache
def generate_mixed_signals() -> Mapping[str, ClassificationTask]:
    """Return the bundled suite `msgs-ours`, which was generated, as a mapping from task names to tasks.

    >>> generate_mixed_signals()["ambiguous main_verb_length"].labels
    ('no', 'yes')
    """
    sets: dict[str, dict[str, tuple[LabeledText, ...]]] = {}
    for row in _read("mixed_signals.jsonl.gz"):
        examples = zip(row["texts"], row["labels"], strict=True)
        sets.setdefault(row["task"], {})[row["split"]] = tuple(
            LabeledText(text, None, label) for text, label in examples
        )
    ambiguous = "the features agree in training and differ in the test set"
    return {
        name: ClassificationTask(
            measure="msgs-ours",
            name=name,
            labels=("no", "yes"),
            metric="mcc",
            **splits,
            source=f"generated (seed 0); {ambiguous if name.startswith('ambiguous') else 'one feature'}",
            also=("accuracy",),
        )
        for name, splits in sets.items()
    }
