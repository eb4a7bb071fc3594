"""Sentences that test whether a model generalizes by structure or by surface (`mixed_signals.jsonl.gz`).

The design is that of MSGS (Warstadt et al. 2020): `ambiguous LINGUISTIC_SURFACE` teaches labels that both features
explain and tests where they differ (Matthews' correlation is +1 for structure, -1 for surface); `control FEATURE`
teaches and tests one feature. Labels are balanced, sentences are unique in a task, and the test set has other words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from layerwise.data.suites.classification import ClassificationTask, Labelled
from layerwise.data.suites.packaged import TABLES, read_packaged
from layerwise.errors import DataError, near_matches

GENERATED_MSGS = "msgs-ours"
LABELS = ("no", "yes")

WORDS: Mapping[str, Sequence[str]] = TABLES["words"]["msgs"]


class Sizes(NamedTuple):
    """How many sentences of each set a task has, at most."""

    train: int = 1000
    selection: int = 200
    test: int = 500


LINGUISTIC = ("main_verb", "control_raising", "syntactic_category")
"""The linguistic features: the main verb, not that of the relative clause, is the one in -ing; the infinitive follows a
control verb (tried to), not a raising one (seemed to); a noun has an adjective before it, not another noun."""


SURFACE = ("lexical_content_the", "relative_position", "length")
"""The surface features: "the" occurs; "the" comes before "a"; there are more than ten words."""

_VERBS = frozenset(
    word for kind in ("transitive", "intransitive") for forms in WORDS[kind] for word in re.split("[/ ]", forms)
)


def _before_infinitive(words: Sequence[str]) -> set[int]:
    index = words.index("to") - 1
    return {index - 1, index} if words[index - 1] == "was" else {index}


def _among(carriers: Collection[str]) -> Callable[[Sequence[str]], set[int]]:
    return lambda words: {index for index, word in enumerate(words) if word in carriers}


_CARRIERS: Mapping[str, Callable[[Sequence[str]], set[int]]] = MappingProxyType(
    {
        "main_verb": _among(_VERBS),
        "control_raising": _before_infinitive,
        "syntactic_category": _among((*WORDS["adjective"], *WORDS["modifier"])),
        "lexical_content_the": _among(("the",)),
        "relative_position": _among(("the", "a")),
        "length": _among(()),
    }
)

NAMES = (
    *(f"control {feature}" for feature in (*LINGUISTIC, *SURFACE)),
    *(f"ambiguous {linguistic}_{surface}" for linguistic in LINGUISTIC for surface in SURFACE),
)


def features_of(task: str) -> tuple[str | None, str | None]:
    """The linguistic and the surface feature of a task; `None` for the one that it does not ask about.

    >>> features_of("ambiguous main_verb_relative_position"), features_of("control length")
    (('main_verb', 'relative_position'), (None, 'length'))
    """
    features = task.partition(" ")[2]
    linguistic = next((feature for feature in LINGUISTIC if features.startswith(feature)), None)
    return linguistic, next((feature for feature in SURFACE if features.endswith(feature)), None)


def feature_spans(feature: str, text: str) -> tuple[tuple[int, int], ...]:
    """Where the words stand that carry a feature in a sentence: the first character of each, and the one behind it.

    They are those that other words take the place of when the feature changes and all else stays: both verbs with
    their auxiliary (`main_verb`), the verb before the infinitive, the word before a noun; "the", or "the" and "a".
    Length is carried by no word more than by another, and has none. Raises `DataError` for an unknown feature.

    >>> text = "A user who helped the doctor was sleeping."
    >>> [text[start:end] for start, end in feature_spans("main_verb", text)]
    ['helped', 'was', 'sleeping']
    """
    if feature not in _CARRIERS:
        raise DataError(f"unknown feature {feature!r}; {near_matches(feature, _CARRIERS)}")
    words = list(re.finditer(r"[^\s.]+", text))
    indices = _CARRIERS[feature]([match.group().lower() for match in words])
    return tuple(words[index].span() for index in sorted(indices))


def mixed_signals(names: Sequence[str] | None = None, sizes: Sizes | None = None) -> list[ClassificationTask]:
    """Return the tasks called `names` (all of `NAMES` without them), with the first sentences of each set.

    Raises `DataError` for an unknown name.

    >>> mixed_signals(["ambiguous main_verb_length"], Sizes(2, 2, 2))[0].labels
    ('no', 'yes')
    """
    for name in names or ():
        if name not in NAMES:
            raise DataError(f"unknown task {name!r} of {GENERATED_MSGS}; {near_matches(name, NAMES)}")
    sets = {
        (row["task"], row["split"]): tuple(
            Labelled(text, None, label) for text, label in zip(row["texts"], row["labels"], strict=True)
        )
        for row in read_packaged("mixed_signals.jsonl.gz")
    }
    tasks = []
    for name in NAMES if names is None else [name for name in NAMES if name in names]:
        is_ambiguous = name.startswith("ambiguous")
        condition = "the features agree in training and differ in the test set" if is_ambiguous else "one feature"
        train, selection, test = (sets[name, split][:size] for split, size in (sizes or Sizes())._asdict().items())
        about = (GENERATED_MSGS, name, LABELS, "mcc")
        tasks.append(
            ClassificationTask(*about, train, selection, test, f"generated (seed 0); {condition}", ("accuracy",))
        )
    return tasks
