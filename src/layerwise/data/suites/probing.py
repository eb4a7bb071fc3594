"""Binary features of words and sentences for probes of hidden states, from the bundled minimal pairs.

    length, frequency    a content word is longer, or more frequent in a text, than the median
    position             a noun is in the second half of its sentence
    capitalisation       the first word is capitalized (half of them are not)
    part_of_speech       a content word is a verb, not a noun
    number               the subject is plural; probed at the last word of the sentence
    grammaticality       the word order is correct; probed over the entire sentence

Labels are balanced, and no `group` (the forms of a word, or a pair) is in both the training and the test set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Literal

from layerwise.data.suites.generated import PARADIGMS
from layerwise.data.suites.minimal_pairs import TABLES

WORDS: Mapping[str, Sequence[str]] = TABLES["words"]["pairs"]
"""Words by part of speech, with the forms of each (`file/files`)."""

PAIRS = 60

MAX_UNITS = 300
"""Maximum number of probed words or sentences per label."""

Side = Literal["surface", "linguistic"]


@dataclass(frozen=True, slots=True)
class ProbedUnit:
    """Word number `word` of sentence number `sentence`, or the entire sentence if `word` is None, with its label."""

    sentence: int
    word: int | None
    label: bool
    group: str


@dataclass(frozen=True, slots=True)
class ProbedFeature:
    """A surface or linguistic feature, and equally many words or sentences with and without it."""

    name: str
    side: Side
    units: tuple[ProbedUnit, ...]


@dataclass(frozen=True, slots=True)
class ProbedText:
    sentences: tuple[tuple[str, ...], ...]
    features: tuple[ProbedFeature, ...]


def _by_form(kind: str, lemma: int) -> dict[str, str]:
    return {form: forms.split("/")[lemma] for forms in WORDS[kind] for form in forms.split("/")}


_NOUNS = _by_form("noun", 0)
_VERBS = _by_form("verb", 1) | _by_form("participle", 0)
_CONTENT: Mapping[str, str] = {**_by_form("adjective", 0), **_VERBS, **_NOUNS}

_PLURAL = frozenset(forms.split("/")[1] for forms in WORDS["noun"])
_AGREEING = tuple(name for name, pairs in PARADIGMS.items() if pairs[0].term == "subject_verb_agreement")
_ORDERED = tuple(name for name, pairs in PARADIGMS.items() if pairs[0].field == "syntax")


def generate_probed_text(
    seed: int = 0, frequency: Callable[[str], float] | None = None, pairs: int = PAIRS
) -> ProbedText:
    """Build the probed sentences and their features.

    `seed` draws the probed words. `frequency` returns the frequency of a word. If it is None, the feature `frequency`
    is omitted.

    >>> text = generate_probed_text()
    >>> [feature.name for feature in text.features if feature.side == "linguistic"]
    ['part_of_speech', 'number', 'grammaticality']
    """
    chance = Random(f"{seed}/probing")
    drawn = [(name, pair) for name, every in PARADIGMS.items() for pair in every[:pairs]]
    capitals = [chance.random() < 0.5 for _ in drawn]  # the same in both sentences of a pair
    good = [_words(pair.good, capital) for (_, pair), capital in zip(drawn, capitals, strict=True)]
    bad = [_words(pair.bad, capital) for (_, pair), capital in zip(drawn, capitals, strict=True)]
    features = [
        ProbedFeature("length", "surface", _by_median(good, len)),
        ProbedFeature("position", "surface", tuple(_positions(good))),
        ProbedFeature(
            "capitalisation",
            "surface",
            tuple(ProbedUnit(number, 0, words[0][0].isupper(), str(number)) for number, words in enumerate(good)),
        ),
        ProbedFeature(
            "part_of_speech",
            "linguistic",
            tuple(
                ProbedUnit(number, at, word in _VERBS, _CONTENT[word])
                for number, at, word in _content(good)
                if word in _VERBS or word in _NOUNS
            ),
        ),
        ProbedFeature(
            "number",
            "linguistic",
            tuple(
                ProbedUnit(number, len(words) - 1, words[1] in _PLURAL, str(number))
                for number, (words, (name, _)) in enumerate(zip(good, drawn, strict=True))
                if name in _AGREEING
            ),
        ),
        ProbedFeature(
            "grammaticality",
            "linguistic",
            tuple(
                ProbedUnit(number + (0 if label else len(good)), None, label, str(number))
                for number, (name, _) in enumerate(drawn)
                if name in _ORDERED
                for label in (True, False)
            ),
        ),
    ]
    if frequency is not None:
        features.insert(1, ProbedFeature("frequency", "surface", _by_median(good, frequency)))
    return ProbedText((*good, *bad), tuple(_balanced(each, seed) for each in features))


def _words(sentence: str, capital: bool) -> tuple[str, ...]:
    first, *rest = sentence.rstrip(".").split()
    return (first if capital else first.lower(), *rest)


def _content(sentences: Sequence[Sequence[str]]) -> Iterator[tuple[int, int, str]]:
    for number, words in enumerate(sentences):
        yield from ((number, at, word) for at, word in enumerate(words) if at and word in _CONTENT)


def _by_median(sentences: Sequence[Sequence[str]], value: Callable[[str], float]) -> tuple[ProbedUnit, ...]:
    words = list(_content(sentences))
    middle = median(value(word) for word in {word for _, _, word in words})
    return tuple(ProbedUnit(number, at, value(word) > middle, _CONTENT[word]) for number, at, word in words)


def _positions(sentences: Sequence[Sequence[str]]) -> Iterator[ProbedUnit]:
    for number, words in enumerate(sentences):
        for at, word in enumerate(words):
            if word in _NOUNS:
                yield ProbedUnit(number, at, at >= len(words) / 2, str(number))


def _balanced(feature: ProbedFeature, seed: int) -> ProbedFeature:
    chance = Random(f"{seed}/probing/{feature.name}")
    sides = {label: [unit for unit in feature.units if unit.label is label] for label in (False, True)}
    count = min(MAX_UNITS, *map(len, sides.values()))
    if feature.name == "grammaticality":
        groups = set(chance.sample(sorted({unit.group for unit in feature.units}), count))
        return ProbedFeature(feature.name, feature.side, tuple(each for each in feature.units if each.group in groups))
    drawn = [unit for units in sides.values() for unit in chance.sample(units, count)]
    return ProbedFeature(feature.name, feature.side, tuple(drawn))
