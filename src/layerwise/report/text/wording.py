"""Names as they are read: `middle_repeat` becomes `middle repeat`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from layerwise.plan.quantised import TYPES

NAMES = {"random": "random order", "kendall": "random order at a distance"}

NATS = "Losses are in nats per token: 0.69 nats more, and the right token is half as likely."
"""What the unit of a loss means, for the paragraph that a page opens with."""

OF_SENTENCES = {
    r"negative log-likelihood under a plan minus that of the untouched model, nats per token": (
        "1 less the rank correlation of similarities of sentences under a plan with those of the untouched model"
    ),
    r"(?:Δ|\\u0394) NLL(?: \(nats (?:a|per) token\))?": "lost rank correlation",
    "scored tokens": "sentences",
    r"0\.69 nats more, and the right token is half as likely": "1 is what unrelated similarities lose",
    r"[Nn]ats a token above": "Rank correlation lost above",
    r"right \(%\)": "same nearest sentence (%)",
    r"nats (?:a|per) (?:scored )?token": "of rank correlation",
    "token accuracy": "same nearest sentence",
    r"(?<=\d) nats (on;|take)": r" of rank correlation \1",
    r"(?<=\d) tokens, at this pace": " sentences, at this pace",
}
"""The words for losses in nats, as patterns, and those for embeddings of sentences."""


def of_sentences(text: str) -> str:
    """A text about losses in nats with the unit of embeddings of sentences in its place.

    >>> of_sentences("Layer 5: dropping it costs +0.314 nats per token"), of_sentences("Nats a token above it")
    ('Layer 5: dropping it costs +0.314 of rank correlation', 'Rank correlation lost above it')
    """
    for pattern, words in OF_SENTENCES.items():
        text = re.sub(pattern, words, text)
    return text


def label(name: str) -> str:
    """A strategy, family or metric as words; a type of GGUF is a name.

    >>> label("leave_one_out"), label("Q4_0")
    ('leave one out', 'Q4_0')
    """
    return name if name in TYPES else NAMES.get(name, name.replace("_", " "))


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it must be.

    >>> counted(1, "plan"), counted(1200, "plan")
    ('1 plan', '1,200 plans')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def sentence(text: str) -> str:
    """A clause as a sentence of its own.

    >>> sentence("ramp is left out"), sentence("Already one.")
    ('Ramp is left out.', 'Already one.')
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


NULL_NAMES = {
    "no_effect": "no effect",
    "random_twin": "random twin",
    "shuffled": "shuffled layers",
    "shuffled_layers": "shuffled layers",
    "permuted_units": "permuted units",
    "independent": "independent layers",
    "same_norm_random": "random error of the same norm",
    "p_over_n": "p/n, what a fit to noise gives",
    "twin": "undamaged twin",
    "uniform": "uniform",
}


def null_name(null: str) -> str:
    """A null as it is read.

    >>> null_name("random_twin"), null_name("something_else")
    ('random twin', 'something else')
    """
    return NULL_NAMES.get(null, label(null))


STOPPED = "the run was interrupted, or is still going. Resume it and write the report again."


def arm_tiles(arms: Collection[str], seeds: Mapping[str, Collection[int]]) -> tuple[tuple[str, str], ...]:
    """How many arms a run has, and the most seeds that any of them was trained with."""
    most = max((len(seeds.get(arm, ())) for arm in arms), default=0)
    return ((f"{len(arms):,}", "arms"), *(((f"{most:,}", "seeds"),) if most else ()))


def incomplete(*parts: tuple[Collection[str], str]) -> str | None:
    """The banner that names what is not complete, each kind with its noun; `None` where nothing is missing."""
    named = [(names, noun) for names, noun in parts if names]
    if not named:
        return None
    what = listed([f"{counted(len(names), noun)} ({listed(list(names))})" for names, noun in named])
    verb = "is" if sum(len(names) for names, _ in named) == 1 else "are"
    return f"{what} {verb} not complete: {STOPPED}"
