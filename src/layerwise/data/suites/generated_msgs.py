"""Mixed signals of our own: sentences that test whether a model generalises by structure or by what meets the eye.

A model is taught a label that two features explain equally well, a linguistic one and a surface one, and is then asked
about sentences where the two disagree. Matthews' correlation of its answers with the linguistic feature is its
linguistic generalisation score: +1 if it took the label to mean the structure, -1 if it took it to mean the surface.
That is the design of MSGS (Warstadt et al. 2020); the sentences here are others, fewer and simpler, so the numbers are
of measure `msgs-ours` and compare with nothing but themselves.

    linguistic    main_verb              the main verb, not that of the relative clause, is the one in -ing
                  control_raising        the infinitive follows a control verb (tried to), not a raising one (seemed to)
                  syntactic_category     a noun has an adjective before it, not another noun (a famous driver)
    surface       lexical_content_the    the word "the" occurs
                  relative_position      "the" comes before "a"; both occur once
                  length                 more than ten words

`control FEATURE` teaches and asks one feature: can it be learned at all? `ambiguous LINGUISTIC_SURFACE` teaches where
both are the same and asks where they differ. Labels are balanced in every set, every sentence is drawn once, and all
grammars draw their articles, adverbials and lengths alike, so that nothing but the named features separates the labels.
The words that carry a linguistic feature (verbs, adjectives) are others in the test set than in training: the feature
can be known from pre-training or from structure, never from a list of words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any

from layerwise.data.suites.classification import Labelled, Task
from layerwise.data.suites.templates import TABLES, drawn, filled, sentence
from layerwise.errors import DataError, near_matches

GENERATED_MSGS = "msgs-ours"
LABELS = ("no", "yes")
LONG = 10
"""A sentence of more words than this is long."""

_PATIENCE = 2000  # drawings for one sentence: the rarest cell is one drawing in about twenty

WORDS: Mapping[str, Sequence[str]] = TABLES["words"]["msgs"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many sentences each task has; even numbers, because labels are balanced."""

    train: int = 1000
    selection: int = 200
    test: int = 500

    def __post_init__(self) -> None:
        for name in ("train", "selection", "test"):
            count = getattr(self, name)
            if count < 2 or count % 2:
                raise DataError(f"{count} {name} sentences were asked for; give an even number, 2 or more")


LINGUISTIC: Mapping[str, Mapping[str, Any]] = TABLES["msgs"]
"""The template of a sentence for each linguistic feature."""


def _the_first(words: Sequence[str]) -> bool | None:
    """Undefined unless each of the two occurs exactly once."""
    if words.count("the") != 1 or words.count("a") != 1:
        return None
    return words.index("the") < words.index("a")


SURFACE: Mapping[str, Callable[[Sequence[str]], bool | None]] = MappingProxyType(
    {
        "lexical_content_the": lambda words: "the" in words,
        "relative_position": _the_first,
        "length": lambda words: len(words) > LONG,
    }
)

_VERBS = frozenset(
    word for kind in ("transitive", "intransitive") for forms in WORDS[kind] for word in re.split("[/ ]", forms)
)


def _before_infinitive(words: Sequence[str]) -> set[int]:
    """`tried`, or `was eager`, before `to read`."""
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
"""The indices of the words that carry a feature, of a sentence's words."""

NAMES = (
    *(f"control {feature}" for feature in (*LINGUISTIC, *SURFACE)),
    *(f"ambiguous {linguistic}_{surface}" for linguistic in LINGUISTIC for surface in SURFACE),
)
"""Every task there is."""


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


def mixed_signals(names: Sequence[str] | None = None, sizes: Sizes | None = None, *, seed: int = 0) -> list[Task]:
    """The tasks called `names` (all of `NAMES` without them), each drawn from `seed` and its own name.

    Raises `DataError` for an unknown name, and for more sentences than the grammar has.

    >>> mixed_signals(["ambiguous main_verb_length"], Sizes(2, 2, 2))[0].labels
    ('no', 'yes')
    """
    for name in names or ():
        if name not in NAMES:
            raise DataError(f"unknown task {name!r} of {GENERATED_MSGS}; {near_matches(name, NAMES)}")
    return [_task(name, sizes or Sizes(), seed) for name in NAMES if name in (names or NAMES)]


def _task(name: str, sizes: Sizes, seed: int) -> Task:
    kind = name.partition(" ")[0]
    random = Random(f"{seed}/{name}")
    linguistic, surface = features_of(name)
    taken: set[str] = set()

    def rows(count: int, half: int, agree: bool) -> tuple[Labelled, ...]:
        examples = []
        for number in range(count):
            yes = number % 2 == 0
            text = _fresh(random, linguistic, surface, yes, yes if agree else not yes, half, taken)
            examples.append(Labelled(text, None, int(yes)))
        return tuple(examples)

    ambiguous = kind == "ambiguous"
    condition = "the features agree in training and differ in the test set" if ambiguous else "one feature"
    return Task(
        GENERATED_MSGS,
        name,
        LABELS,
        "mcc",
        rows(sizes.train, 0, True),
        rows(sizes.selection, 0, True),
        rows(sizes.test, 1, not ambiguous),
        f"generated (seed {seed}); {condition}",
        ("accuracy",),
    )


def _fresh(
    random: Random, linguistic: str | None, surface: str | None, yes: bool, seen: bool, half: int, taken: set[str]
) -> str:
    """A new sentence: its linguistic feature, if it has one, is `yes`, and its surface feature, if any, `seen`."""
    for words in _drawings(random, linguistic, yes, half):
        text = " ".join(words)
        if text not in taken and (surface is None or SURFACE[surface](words) is seen):
            taken.add(text)
            return sentence(text)
    raise DataError(
        f"after {len(taken)} sentences of {linguistic} and {surface}, {_PATIENCE} drawings gave no new one; "
        "ask for fewer"
    )


def _drawings(random: Random, linguistic: str | None, yes: bool, half: int) -> Iterator[list[str]]:
    """Sentences as words: one grammar's, or any grammar's with any label, with up to four adverbials around.

    The words that carry a linguistic feature are of the `half` of training (0) or of the test (1).
    """
    for _ in range(_PATIENCE):
        if linguistic is None:
            template, label = random.choice(list(LINGUISTIC.values())), random.random() < 0.5
        else:
            template, label = LINGUISTIC[linguistic], yes
        words = drawn(template["draws"], WORDS, random, yes=label, half=half)
        text = filled(template["texts"][words.get("c", 0)], words)
        around = random.sample(WORDS["adverbial"], random.randint(0, 4))
        opening = 1 if around and random.random() < 0.5 else 0
        yield " ".join([*around[:opening], text, *around[opening:]]).split()
