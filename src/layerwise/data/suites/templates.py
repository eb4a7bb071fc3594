"""Templates: the sentences of the generated suites as data, in `suites.toml` beside this module, which explains it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

TABLES: Mapping[str, Any] = tomllib.loads(files(__package__).joinpath("suites.toml").read_text(encoding="utf-8"))
"""The tables of `suites.toml` by their names."""

Words = Mapping[str, Sequence[str]]
Drawn = Mapping[str, Any]


def drawn(draws: str, words: Words, random: Random, *, yes: bool = False, half: int = 0) -> Drawn:
    """What the `draws` of a template give, by their names; words are drawn from the lists in `words`.

    `half` says which half of a list that is divided (0: the even places, 1: the odd ones).

    >>> drawn("n=noun c=2", {"noun": ["file/files"]}, Random(0))["n"]
    'file/files'
    """
    values: dict[str, Any] = {"y": int(yes)}
    for name, source in _steps(draws):
        if source.isdigit():
            values[name] = random.randrange(int(source))
        elif source == "coin":
            values[name] = int(random.random() < 0.5)
        else:
            choices = words[_form(source.rstrip("%?"), values)]
            values[name] = random.choice(choices[half::2] if source.endswith("%") else choices)
            if source.endswith("?"):
                values[name] = values[name].split("/")[random.randrange(2)]
    return values


def filled(text: str, values: Drawn) -> str:
    """A text of a template with what was drawn.

    >>> filled("the $n.c is/are.c new", {"n": "file/files", "c": 1})
    'the files are new'
    """
    return " ".join(_form(word, values) for word in text.split())


def sentence(text: str) -> str:
    """The words as a sentence: a capital first, a full stop last."""
    return f"{text[0].upper()}{text[1:]}."


@cache
def _steps(draws: str) -> tuple[tuple[str, str], ...]:
    """The names of the draws, each with what it is drawn from."""
    pairs = (draw.partition("=") for draw in draws.split())
    return tuple((name, source) for name, _, source in pairs)


@cache
def _parts(word: str) -> tuple[str | None, tuple[str, ...], str, str]:
    """The name of a draw or the forms of a word, then how the number of the form is found, and from which draw."""
    forms, _, number = word.partition(".")
    name = forms[1:] if forms.startswith("$") else None
    return name, tuple(forms.split("/")), number[:1] if number[:1] in "~^" else "", number.lstrip("~^")


def _form(word: str, values: Drawn) -> str:
    name, forms, kind, number = _parts(word)
    if not number:
        return forms[0] if name is None else values[name]
    value = int(number) if number.isdigit() else values[number]
    if kind == "^":
        value = int(value[0] in "aeiou")
    chosen = 1 - value if kind == "~" else value
    return (forms if name is None else values[name].split("/"))[chosen]
