"""Minimal pairs of our own, made from a small grammar, for models that have read little.

BLiMP's sentences are about people in everyday life, in words that a model trained on technical prose has never met: it
then fails on the words, and nothing is learned of its grammar. The pairs made here are of BLiMP's kind, in words that
the documentation of Python's standard library uses all the time, which is what the small models of this package read.

Each paradigm breaks one rule in one way: either one word is exchanged for another, or the same words stand in another
order. Draws are decided by the seed, no pair comes twice, and both sentences have equally many words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Literal

from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.errors import DataError, near_matches

SUITE = "pairs"
PAIRS = 300
"""Pairs of each paradigm, unless another number is asked for."""

# Singular and plural.
NOUNS = (
    *(("file", "files"), ("name", "names"), ("value", "values"), ("object", "objects"), ("method", "methods")),
    *(("function", "functions"), ("argument", "arguments"), ("list", "lists"), ("string", "strings")),
    *(("message", "messages"), ("class", "classes"), ("module", "modules"), ("type", "types"), ("line", "lines")),
    *(("character", "characters"), ("attribute", "attributes"), ("item", "items"), ("key", "keys")),
    *(("error", "errors"), ("exception", "exceptions"), ("test", "tests"), ("number", "numbers")),
    *(("directory", "directories"), ("parameter", "parameters"), ("option", "options"), ("element", "elements")),
    *(("header", "headers"), ("thread", "threads"), ("instance", "instances"), ("address", "addresses")),
)
ADJECTIVES = ("new", "given", "default", "optional", "current", "original", "empty", "valid", "special", "internal")
# Third person singular, base form.
VERBS = (
    *(("returns", "return"), ("raises", "raise"), ("uses", "use"), ("takes", "take"), ("contains", "contain")),
    *(("calls", "call"), ("reads", "read"), ("creates", "create"), ("needs", "need"), ("supports", "support")),
    *(("matches", "match"), ("changes", "change"), ("adds", "add"), ("handles", "handle"), ("defines", "define")),
    *(("provides", "provide"), ("accepts", "accept")),
)
# Base form, participle; the two differ in all of them.
PARTICIPLES = (
    *(("return", "returned"), ("raise", "raised"), ("use", "used"), ("call", "called"), ("create", "created")),
    *(("remove", "removed"), ("add", "added"), ("handle", "handled"), ("define", "defined"), ("write", "written")),
    *(("provide", "provided"), ("replace", "replaced"), ("change", "changed"), ("support", "supported")),
)
MODALS = ("can", "must", "should", "may", "will")
PREPOSITIONS = ("of", "in", "for", "from", "with", "by", "to")
SINGULAR_DETERMINERS = ("this", "each", "every")
PLURAL_DETERMINERS = ("these", "all", "several")

Difference = Literal["word", "order"]
Sentences = tuple[list[str], list[str]]


@dataclass(frozen=True, slots=True)
class Paradigm:
    """One way of breaking one rule: a draw gives the words of the good and of the bad sentence.

    `difference` says how they differ: in one `word`, or in the `order` of the same words.
    """

    uid: str
    term: str
    field: str
    difference: Difference
    draw: Callable[[Random], Sentences]


def _noun(random: Random, number: int | None = None) -> str:
    """A noun: singular (0), plural (1), or either."""
    return random.choice(NOUNS)[random.randrange(2) if number is None else number]


def _tail(random: Random) -> list[str]:
    """A prepositional phrase, as `of the file`."""
    return [random.choice(PREPOSITIONS), "the", _noun(random)]


def _determiner_noun(number: int, *, adjective: bool) -> Callable[[Random], Sentences]:
    def draw(random: Random) -> Sentences:
        determiner = random.choice((SINGULAR_DETERMINERS, PLURAL_DETERMINERS)[number])
        nouns, between = random.choice(NOUNS), [random.choice(ADJECTIVES)] if adjective else []
        before = [random.choice(MODALS), random.choice(VERBS)[1], determiner, *between]
        start, tail = ["the", _noun(random)], _tail(random)
        good, bad = nouns[number], nouns[1 - number]
        return [*start, *before, good, *tail], [*start, *before, bad, *tail]

    return draw


def _subject_verb(number: int) -> Callable[[Random], Sentences]:
    def draw(random: Random) -> Sentences:
        subject, verb = ["the", _noun(random, number)], random.choice(VERBS)
        tail = ["the", _noun(random), *_tail(random)]
        return [*subject, verb[number], *tail], [*subject, verb[1 - number], *tail]

    return draw


def _auxiliary(good_and_bad: tuple[str, str], after: Callable[[Random], list[str]]) -> Callable[[Random], Sentences]:
    """Agreement of an auxiliary with its subject: the first of the two follows a singular, the second a plural."""

    def draw(random: Random) -> Sentences:
        number = random.randrange(2)
        subject, rest = ["the", _noun(random, number)], after(random)
        return [*subject, good_and_bad[number], *rest], [*subject, good_and_bad[1 - number], *rest]

    return draw


def _attractor(random: Random) -> Sentences:
    """The verb follows its subject, not the nearer noun, whose number is the other one."""
    number = random.randrange(2)
    copula = ("is", "are")
    start = ["the", _noun(random, number), random.choice(("of", "in", "for")), "the", _noun(random, 1 - number)]
    rest = [random.choice(PARTICIPLES)[1], *_tail(random)]
    return [*start, copula[number], *rest], [*start, copula[1 - number], *rest]


def _article(*, adjective: bool) -> Callable[[Random], Sentences]:
    def draw(random: Random) -> Sentences:
        phrase = [random.choice(ADJECTIVES)] if adjective else []
        phrase.append(_noun(random, 0))
        good, bad = ("an", "a") if phrase[0][0] in "aeiou" else ("a", "an")
        start, tail = ["the", _noun(random, 0), random.choice(VERBS)[0]], _tail(random)
        return [*start, good, *phrase, *tail], [*start, bad, *phrase, *tail]

    return draw


def _exchanged(words: list[str], first: int) -> Sentences:
    """The words, and the words with those at `first` and after it exchanged."""
    other = [*words]
    other[first], other[first + 1] = words[first + 1], words[first]
    return words, other


def _determiner_order(random: Random) -> Sentences:
    return _exchanged(["the", _noun(random, 0), random.choice(VERBS)[0], "the", _noun(random), *_tail(random)], 3)


def _preposition_order(random: Random) -> Sentences:
    return _exchanged(["the", _noun(random, 0), random.choice(VERBS)[0], "the", _noun(random), *_tail(random)], 5)


def _adjective_order(random: Random) -> Sentences:
    phrase = ["the", random.choice(ADJECTIVES), _noun(random), *_tail(random)]
    return _exchanged(["the", _noun(random, 0), random.choice(VERBS)[0], *phrase], 4)


def _modal_order(random: Random) -> Sentences:
    phrase = [random.choice(MODALS), "be", random.choice(PARTICIPLES)[1]]
    return _exchanged(["the", _noun(random), *phrase, *_tail(random)], 2)


def _modal_form(random: Random) -> Sentences:
    start, verb = ["the", _noun(random), random.choice(MODALS)], random.choice(VERBS)
    tail = ["the", _noun(random), *_tail(random)]
    return [*start, verb[1], *tail], [*start, verb[0], *tail]


def _infinitive_form(random: Random) -> Sentences:
    start, verb = ["the", _noun(random, 0), "is", "used", "to"], random.choice(VERBS)
    tail = ["the", _noun(random)]
    return [*start, verb[1], *tail], [*start, verb[0], *tail]


def _participle_form(random: Random) -> Sentences:
    verb, tail = random.choice(PARTICIPLES), _tail(random)
    start = ["the", _noun(random), random.choice(MODALS), "be"]
    return [*start, verb[1], *tail], [*start, verb[0], *tail]


def _negated_modal(random: Random) -> Sentences:
    # Without "can": its negation is written in one word.
    phrase = [random.choice([word for word in MODALS if word != "can"]), "not", "be", random.choice(PARTICIPLES)[1]]
    return _exchanged(["the", _noun(random), *phrase, *_tail(random)], 2)


def _negated_verb(random: Random) -> Sentences:
    phrase = ["does", "not", random.choice(VERBS)[1], "the", _noun(random)]
    return _exchanged(["the", _noun(random, 0), *phrase, *_tail(random)], 3)


def _described(random: Random) -> list[str]:
    return [random.choice(("empty", "valid", "optional", "new")), *_tail(random)]


def _owned(random: Random) -> list[str]:
    return [random.choice(("a", "no")), random.choice(("new", "default", "valid", "special")), _noun(random, 0)]


def _denied(random: Random) -> list[str]:
    return ["not", random.choice(VERBS)[1], "the", _noun(random)]


_NOUN, _VERB, _ARTICLE = "determiner_noun_agreement", "subject_verb_agreement", "indefinite_article"
_PHRASE, _FORM, _NEGATION = "phrase_order", "verb_form", "negation"

PARADIGMS: Mapping[str, Paradigm] = MappingProxyType(
    {
        each.uid: each
        for each in (
            Paradigm("determiner_singular_noun", _NOUN, "morphology", "word", _determiner_noun(0, adjective=False)),
            Paradigm("determiner_plural_noun", _NOUN, "morphology", "word", _determiner_noun(1, adjective=False)),
            Paradigm("determiner_adjective_singular", _NOUN, "morphology", "word", _determiner_noun(0, adjective=True)),
            Paradigm("determiner_adjective_plural", _NOUN, "morphology", "word", _determiner_noun(1, adjective=True)),
            Paradigm("singular_subject_verb", _VERB, "morphology", "word", _subject_verb(0)),
            Paradigm("plural_subject_verb", _VERB, "morphology", "word", _subject_verb(1)),
            Paradigm("subject_copula", _VERB, "morphology", "word", _auxiliary(("is", "are"), _described)),
            Paradigm("subject_has_have", _VERB, "morphology", "word", _auxiliary(("has", "have"), _owned)),
            Paradigm("subject_does_do", _VERB, "morphology", "word", _auxiliary(("does", "do"), _denied)),
            Paradigm("copula_across_attractor", _VERB, "morphology", "word", _attractor),
            Paradigm("article_noun", _ARTICLE, "morphology", "word", _article(adjective=False)),
            Paradigm("article_adjective", _ARTICLE, "morphology", "word", _article(adjective=True)),
            Paradigm("determiner_before_noun", _PHRASE, "syntax", "order", _determiner_order),
            Paradigm("preposition_before_determiner", _PHRASE, "syntax", "order", _preposition_order),
            Paradigm("adjective_before_noun", _PHRASE, "syntax", "order", _adjective_order),
            Paradigm("modal_before_auxiliary", "auxiliary_order", "syntax", "order", _modal_order),
            Paradigm("base_form_after_modal", _FORM, "morphology", "word", _modal_form),
            Paradigm("base_form_after_to", _FORM, "morphology", "word", _infinitive_form),
            Paradigm("participle_after_be", _FORM, "morphology", "word", _participle_form),
            Paradigm("negation_after_modal", _NEGATION, "syntax", "order", _negated_modal),
            Paradigm("negation_before_verb", _NEGATION, "syntax", "order", _negated_verb),
        )
    }
)
"""Every paradigm by its UID."""


def vocabulary() -> frozenset[str]:
    """Every word that a sentence of any paradigm can contain, in lower case."""
    words = {word for group in (NOUNS, VERBS, PARTICIPLES) for pair in group for word in pair}
    for group in (ADJECTIVES, MODALS, PREPOSITIONS, SINGULAR_DETERMINERS, PLURAL_DETERMINERS):
        words.update(group)
    return frozenset(words | {"a", "an", "the", "is", "are", "has", "have", "does", "do", "not", "no", "be", "to"})


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

    drawn: dict[MinimalPair, None] = {}
    while len(drawn) < count:
        good, bad = map(_sentence, paradigm.draw(random))
        drawn.setdefault(MinimalPair(good, bad, uid, paradigm.term, paradigm.field))
    return tuple(drawn)


def generated_pairs(count: int = PAIRS, seed: int = 0) -> PairSet:
    """The suite `pairs`: `count` pairs of each of the `PARADIGMS`."""
    pairs = tuple(pair for uid in PARADIGMS for pair in paradigm_pairs(uid, count, seed))
    origin = f"generated pairs, {len(PARADIGMS)} paradigms of {count:,} each, seed {seed}"
    return PairSet(SUITE, origin, pairs)


def _sentence(words: list[str]) -> str:
    """The words as a sentence: a capital first, a full stop last."""
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}."
