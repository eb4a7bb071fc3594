"""Names as they are read: `middle_repeat` becomes `middle repeat`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from layerwise.plan.checks import TYPES

NAMES = {"random": "random order"}

NATS = "Losses are in nats per token: 0.69 nats more, and the right token is half as likely."
"""What the unit of a loss means, for the paragraph that a page opens with."""


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
