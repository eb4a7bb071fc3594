"""The table of which options are read when: it names what there is, and says of the methods what they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import typer

from layerwise.cli.app import app
from layerwise.cli.reads import READS
from layerwise.train.method_options import READ_BY, methods_of
from layerwise.train.recipe import METHODS, Recipe, Settings, recipe

DEPTH = 6


def verbs(group: Any) -> dict[str, set[str]]:
    """The parameters of every command by the name of its function, those inside groups too."""
    found: dict[str, set[str]] = {}
    for command in group.commands.values():
        inside = hasattr(command, "commands")
        for verb, named in (verbs(command) if inside else {command.callback.__name__: command.params}).items():
            names = named if inside else {param.name for param in named}
            found[verb] = found.get(verb, set()) | set(names)
    return found


VERBS = verbs(typer.main.get_command(app))


@pytest.mark.parametrize("verb", READS)
def test_the_table_names_options_that_there_are(verb: str) -> None:
    named = {option for row in READS[verb] for option in row.options}
    assert named <= VERBS[verb]


def made(method: str, **options: Any) -> Recipe:
    """The recipe of a method, but for the settings, which hold every option whoever reads it."""
    settings = {name: value for name, value in options.items() if name in ("drop", "reach")}
    rest = {name: value for name, value in options.items() if name == "skipping"}
    found = recipe(method, replace(Settings(), **settings), DEPTH, **rest)
    return replace(found, settings=Settings(), ranks="together")


@pytest.mark.parametrize(("option", "value"), [("drop", 0.5), ("reach", 2), ("skipping", "preserved")])
def test_the_methods_that_read_an_option_are_those_that_it_changes(option: str, value: object) -> None:
    changed = {method for method in METHODS if made(method) != made(method, **{option: value})}
    # Where several processes train, shuffled orders too are drawn together or apart.
    assert changed == set(READ_BY[option]) - (
        {"layershuffle", "layershuffle-position", "layershuffle-predict"} if option == "skipping" else set()
    )


@pytest.mark.parametrize(
    ("option", "variant"),
    [("position_table", "position"), ("prediction_loss", "predict"), ("prediction_reads", "predict")],
)
def test_options_of_a_variant_are_read_by_its_methods(option: str, variant: str) -> None:
    assert {name for name in METHODS if recipe(name, Settings(), DEPTH).variant == variant} == set(READ_BY[option])


def test_all_methods_read_every_option() -> None:
    assert all(set(readers) <= set(methods_of("all")) for readers in READ_BY.values())
