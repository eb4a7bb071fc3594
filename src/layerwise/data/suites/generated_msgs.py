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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from layerwise.data.suites.classification import Labelled, Task
from layerwise.errors import DataError, near_matches

GENERATED_MSGS = "msgs-ours"
LABELS = ("no", "yes")
LONG = 10
"""A sentence of more words than this is long."""

_PATIENCE = 2000  # drawings for one sentence: the rarest cell is one drawing in about twenty

_ARTICLES = ("the", "the", "a", "a", "this", "every")
_PERSONS = (
    "student", "teacher", "driver", "worker", "doctor", "lawyer", "friend", "neighbor", "player", "writer", "painter",
    "farmer", "soldier", "singer", "manager", "user", "builder", "judge",
)  # fmt: skip
_THINGS = (
    "book", "letter", "report", "program", "house", "machine", "system", "message", "page", "picture", "table", "car",
    "song", "map",
)  # fmt: skip
_ADVERBIALS = (
    "at night", "at home", "at work", "in fact", "in town", "in winter", "in summer", "on Sunday", "on Monday",
    "for years", "for hours", "by chance", "by mistake", "after work", "before lunch", "with care", "in public",
)  # fmt: skip
_INFINITIVES = ("write", "read", "use", "buy", "find", "open", "build", "check", "move", "sell")
_PAST = ("found", "bought", "sold", "used", "moved", "checked", "opened", "built")
_TRANSITIVE = (
    "called/calling", "helped/helping", "watched/watching", "followed/following", "met/meeting", "asked/asking",
    "paid/paying", "thanked/thanking", "taught/teaching", "visited/visiting",
)  # fmt: skip
_INTRANSITIVE = (
    "worked/working", "waited/waiting", "talked/talking", "smiled/smiling", "laughed/laughing", "slept/sleeping",
    "walked/walking", "left/leaving", "stayed/staying", "cried/crying",
)  # fmt: skip
_CONTROL = (
    "tried", "wanted", "hoped", "refused", "was eager", "was willing", "was afraid", "was ready", "was happy",
    "was proud",
)  # fmt: skip
_RAISING = (
    "seemed", "appeared", "happened", "tended", "was likely", "was unlikely", "was certain", "was bound", "was sure",
    "was due",
)  # fmt: skip
_ADJECTIVES = (
    "large", "small", "new", "young", "poor", "strong", "quiet", "famous", "nice", "clever", "modern", "serious",
    "strange", "rich", "tall", "good",
)  # fmt: skip
_MODIFIERS = (
    "school", "city", "company", "hospital", "college", "village", "government", "family", "computer", "business",
    "market", "music", "church", "state", "hotel", "town",
)  # fmt: skip


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


def _main_verb(random: Random, yes: bool, half: int) -> list[str]:
    """`the student who called a teacher was smiling`, or with the relative clause on the object; else -ing in it."""
    transitive, intransitive = (random.choice(_half(words, half)) for words in (_TRANSITIVE, _INTRANSITIVE))
    first, second = _noun(random, _PERSONS), _noun(random, _PERSONS)
    if random.random() < 0.5:
        return [*first, "who", _form(transitive, not yes), *second, _form(intransitive, yes)]
    return [*first, _form(transitive, yes), *second, "who", _form(intransitive, not yes)]


def _control_raising(random: Random, yes: bool, half: int) -> list[str]:
    """`the student tried to read a book`, or `seemed to read`."""
    verb = random.choice(_half(_CONTROL if yes else _RAISING, half))
    return [*_noun(random, _PERSONS), verb, "to", random.choice(_INFINITIVES), *_noun(random, _THINGS)]


def _syntactic_category(random: Random, yes: bool, half: int) -> list[str]:
    """`the famous driver sold a car`, or `the school driver sold a car`; or before the second noun."""
    modifier = random.choice(_half(_ADJECTIVES if yes else _MODIFIERS, half))
    nouns = [_noun(random, _PERSONS), _noun(random, _THINGS)]
    random.choice(nouns).insert(1, modifier)
    return [*nouns[0], random.choice(_PAST), *nouns[1]]


LINGUISTIC: Mapping[str, Callable[[Random, bool, int], list[str]]] = MappingProxyType(
    {"main_verb": _main_verb, "control_raising": _control_raising, "syntactic_category": _syntactic_category}
)


def _has_the(words: Sequence[str]) -> bool:
    return "the" in words


def _the_first(words: Sequence[str]) -> bool | None:
    """Undefined unless each of the two occurs exactly once."""
    if words.count("the") != 1 or words.count("a") != 1:
        return None
    return words.index("the") < words.index("a")


def _is_long(words: Sequence[str]) -> bool:
    return len(words) > LONG


SURFACE: Mapping[str, Callable[[Sequence[str]], bool | None]] = MappingProxyType(
    {"lexical_content_the": _has_the, "relative_position": _the_first, "length": _is_long}
)

_FORMS = frozenset(form for verb in (*_TRANSITIVE, *_INTRANSITIVE) for form in verb.split("/"))


def _verbs(words: Sequence[str]) -> set[int]:
    return {index for index, word in enumerate(words) if word in _FORMS or word == "was"}


def _before_infinitive(words: Sequence[str]) -> set[int]:
    """`tried`, or `was eager`, before `to read`."""
    index = words.index("to") - 1
    return {index - 1, index} if words[index - 1] == "was" else {index}


def _modifier(words: Sequence[str]) -> set[int]:
    return {index for index, word in enumerate(words) if word in _ADJECTIVES or word in _MODIFIERS}


_CARRIERS: Mapping[str, Callable[[Sequence[str]], set[int]]] = MappingProxyType(
    {
        "main_verb": _verbs,
        "control_raising": _before_infinitive,
        "syntactic_category": _modifier,
        "lexical_content_the": lambda words: {index for index, word in enumerate(words) if word == "the"},
        "relative_position": lambda words: {index for index, word in enumerate(words) if word in ("the", "a")},
        "length": lambda words: set(),
    }
)
"""The indices of the words that carry a feature, of a sentence's words."""

NAMES = (
    *(f"control {feature}" for feature in (*LINGUISTIC, *SURFACE)),
    *(f"ambiguous {linguistic}_{surface}" for linguistic in LINGUISTIC for surface in SURFACE),
)
"""Every task there is."""


def surface_feature(name: str, text: str) -> bool | None:
    """What the surface feature `name` says of a sentence; `None` where it is not defined.

    >>> surface_feature("relative_position", "A user helped the doctor."), surface_feature("length", "A user slept.")
    (False, False)
    """
    if name not in SURFACE:
        raise DataError(f"unknown surface feature {name!r}; {near_matches(name, SURFACE)}")
    return SURFACE[name](text.lower().rstrip(".").split())


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
        GENERATED_MSGS, name, LABELS, "mcc", rows(sizes.train, 0, True), rows(sizes.selection, 0, True),
        rows(sizes.test, 1, not ambiguous), f"generated (seed {seed}); {condition}", ("accuracy",),
    )  # fmt: skip


def _fresh(
    random: Random, linguistic: str | None, surface: str | None, yes: bool, seen: bool, half: int, taken: set[str]
) -> str:
    """A new sentence: its linguistic feature, if it has one, is `yes`, and its surface feature, if any, `seen`."""
    for words in _drawings(random, linguistic, yes, half):
        text = " ".join(words)
        if text not in taken and (surface is None or SURFACE[surface](words) is seen):
            taken.add(text)
            return f"{text[0].upper()}{text[1:]}."
    raise DataError(
        f"after {len(taken)} sentences of {linguistic} and {surface}, {_PATIENCE} drawings gave no new one; "
        "ask for fewer"
    )


def _drawings(random: Random, linguistic: str | None, yes: bool, half: int) -> Iterator[list[str]]:
    """Sentences as words: one grammar's, or any grammar's with any label, with up to four adverbials around."""
    for _ in range(_PATIENCE):
        if linguistic is None:
            words = random.choice(list(LINGUISTIC.values()))(random, random.random() < 0.5, half)
        else:
            words = LINGUISTIC[linguistic](random, yes, half)
        around = random.sample(_ADVERBIALS, random.randint(0, 4))
        opening = 1 if around and random.random() < 0.5 else 0
        yield " ".join([*around[:opening], *words, *around[opening:]]).split()


def _noun(random: Random, nouns: Sequence[str]) -> list[str]:
    return [random.choice(_ARTICLES), random.choice(nouns)]


def _half(words: Sequence[str], half: int) -> Sequence[str]:
    """The words that training (0) or the test (1) may use for a linguistic feature."""
    return words[half::2]


def _form(verb: str, progressive: bool) -> str:
    past, _, participle = verb.partition("/")
    return f"was {participle}" if progressive else past
