"""Every verb that is a typed function: its signature, its help, its bounds, and what other callers read from it."""

import inspect
from typing import Any, get_type_hints

import pytest

from cli.command import layerwise as command
from layerwise.catalogue import VERBS
from layerwise.errors import OptionError
from layerwise.runner.verb import Verb, load_verb

TYPED: dict[str, Verb] = {name: load_verb(name) for name in VERBS}

each_verb = pytest.mark.parametrize("verb", TYPED.values(), ids=list(TYPED))


@each_verb
def test_signature_types_and_help_agree(verb: Verb) -> None:
    parameters = inspect.signature(verb.function).parameters
    assert set(parameters) == {*verb.arguments, "reporter"}
    assert set(get_type_hints(verb.function)) == {*parameters, "return"}
    assert verb.arguments.keys() <= {*parameters}
    for argument in verb.arguments.values():
        assert argument.help.endswith("."), argument.name
        assert argument.help[0].isupper() or argument.help[0] == "`", argument.name
        assert f"        {argument.name}: " in (verb.function.__doc__ or "")
    flags = [argument.flag for argument in verb.arguments.values()]
    assert len(flags) == len(set(flags))


@each_verb
def test_the_command_line_lists_every_option_on_one_screen(verb: Verb) -> None:
    shown = command(*verb.name.split(), "--help-all").out
    assert all(argument.flag in shown for argument in verb.listed.values())
    assert len(shown.splitlines()) <= 70


@each_verb
def test_bounds_hold_for_every_caller(verb: Verb) -> None:
    for argument in verb.arguments.values():
        step = 1e-9 if "float" in str(argument.hint) else 1
        bounds = argument.bounds
        allowed = [bound for bound in (bounds.least, bounds.most) if bound is not None]
        outside = [bound + by for bound, by in ((bounds.least, -step), (bounds.most, step)) if bound is not None]
        outside += [bound for bound in (bounds.above, bounds.below) if bound is not None]
        for value in allowed:
            verb.convert({argument.name: [value] if argument.element else value})
        for value in outside:
            with pytest.raises(OptionError, match=rf"^{argument.name} must be (at|above|below)"):
                verb.convert({argument.name: [value] if argument.element else value})


def test_a_run_keeps_the_options_that_were_given(tmp_path: Any) -> None:
    verb = TYPED["sweep"]
    converted = verb.convert({"model": "demo", "plans": "0-3", "new_tokens": 40, "run": str(tmp_path), "seed": 2})
    assert verb.given(converted) == {"model": "demo", "plans": ["0-3"], "run": str(tmp_path), "seed": 2}
