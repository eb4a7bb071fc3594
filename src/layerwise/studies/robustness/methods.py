"""The methods of `layerwise train robust`: their names, and the options that each reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from layerwise.errors import OptionError, TrainError, near_matches
from layerwise.results.training_record import RETRAINED
from layerwise.runner.verb import spell
from layerwise.train.methods import METHODS, READ_BY

OTHER_TRAININGS = ("elc", "growth")
"""Trainings that have a command of their own."""


def expand_methods(names: Iterable[str]) -> tuple[str, ...]:
    """The methods that are named, each once: `all` stands for every one, a number after retrained-K for another depth.

    >>> expand_methods(["layershuffle", "retrained-9", "6", "3"])
    ('layershuffle', 'retrained-9', 'retrained-6', 'retrained-3')
    """
    methods: list[str] = []
    for name in names:
        if name == "all":
            methods += METHODS
        elif name.isdecimal() and methods and methods[-1].startswith(f"{RETRAINED}-"):
            methods.append(f"{RETRAINED}-{name}")
        else:
            methods.append(name)
    return tuple(dict.fromkeys(methods))


def check_method(name: str) -> None:
    if name in OTHER_TRAININGS:
        raise TrainError(f"{name} is not a method of train robust. Run `layerwise train {name}`.")
    if name not in METHODS and not name.startswith(RETRAINED):
        known = near_matches(name, (*METHODS, *OTHER_TRAININGS))
        raise TrainError(f"unknown training method {name[:40]!r}; {known}, {RETRAINED}-K")


def check_read(methods: Iterable[str], given: Mapping[str, bool]) -> None:
    """Check that a method reads every option that was given.

    Raises:
        OptionError: If no method reads one of them.
    """
    named = set(methods)
    for option, is_given in given.items():
        if is_given and named.isdisjoint(READ_BY[option]):
            raise OptionError(f"{spell(option)} requires a method that reads it: {', '.join(READ_BY[option])}.")
