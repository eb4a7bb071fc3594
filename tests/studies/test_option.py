"""An option has one home: its default, its type and its bounds hold for Python, YAML and the command line alike."""

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from layerwise.catalogue import VERBS
from layerwise.data.text.sources import HubText
from layerwise.errors import LayerwiseError, OptionError
from layerwise.runner.catalogue import configuration
from layerwise.runner.option import check_options, configured, flag_of, given_options, option, options_of, plain
from layerwise.runner.options.plans import whole_numbers
from layerwise.runner.verb import Verb
from layerwise.search.budget import Budget
from layerwise.studies.robustness.training_verb import train_robust
from layerwise.studies.save.verb import parse_size
from layerwise.swarm.cluster.connection import check_address


@dataclass(frozen=True, kw_only=True)
class Small:
    model: str = option(help="A model.", positional=True, is_location=True)
    count: int | None = option(None, "A count.", least=1, most=9)
    share: float = option(0.5, "A share.", least=0)
    folder: Path | None = option(None, "A folder.")
    names: tuple[str, ...] = option((), "Names.")
    choice: Literal["left", "right"] = option("left", "A side.")
    switch: bool = option(False, "A switch.")

    def __post_init__(self) -> None:
        check_options(self)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "--count takes a number from 1 up to 9; found 0"),
        ({"count": "three"}, "--count takes a whole number"),
        ({"share": float("nan")}, "--share takes a finite number"),
        ({"share": -1.0}, "--share takes a number from 0"),
        ({"share": 2.0**60}, "--share takes a number up to"),
        ({"folder": "text"}, "--folder takes a path"),
        ({"names": ["a"]}, "--names takes a list"),
        ({"choice": "middle"}, "--choice takes one of left, right"),
        ({"switch": 1}, "--switch takes true or false"),
        ({"model": ""}, "MODEL was given an empty text"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_flag(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("(", r"\(")):
        Small(**{"model": "here", **values})


def test_plain_values_become_those_of_the_configuration_and_come_back() -> None:
    content = {"model": "here", "count": 3, "share": 1, "folder": "runs/a", "names": ["a", "b"], "switch": True}
    config = configured(Small, content, "the file")
    assert config == Small(model="here", count=3, share=1.0, folder=Path("runs/a"), names=("a", "b"), switch=True)
    assert configured(Small, plain(config), "the file") == config


def test_only_what_differs_from_its_default_is_given() -> None:
    assert given_options(Small(model="here", share=0.5, count=2)) == {"model": "here", "count": 2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": "here", "cuont": 3}, "the file: there is no option 'cuont'; did you mean count?"),
        ({"count": 3}, "the file: MODEL must be given"),
        ({"model": "here", "count": "3"}, "--count takes a whole number"),
    ],
)
def test_a_file_is_refused_with_the_option_and_what_to_write(content: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refusal:
        configured(Small, content, "the file")
    assert message in str(refusal.value)


CONFIGURED = [verb for verb in VERBS if not isinstance(configuration(verb), Verb)]


@pytest.mark.parametrize("verb", CONFIGURED)
def test_every_option_of_every_verb_has_help_and_an_unambiguous_flag(verb: str) -> None:
    kind = configuration(verb)
    assert verb == kind.VERB
    options = options_of(kind)
    assert list(options) == [each.name for each in fields(kind)]
    flags = [flag_of(kind, name) for name in options]
    assert len(set(flags)) == len(flags)
    for name, (_, each) in options.items():
        assert each.help.endswith("."), f"--{name}: the help is a sentence"
        assert each.help[0].isupper(), f"--{name}: the help is a sentence"
    for reads in kind.READS:
        assert set(reads.options) <= set(options)


def unchecked(kind: type, name: str, value: object) -> object:
    config, hints = object.__new__(kind), get_type_hints(kind)
    anything = {str: "a", Path: Path("a"), tuple: ("a",)}
    for other, (each, _) in options_of(kind).items():
        hint = hints[other]
        needed = get_args(hint)[0] if get_origin(hint) is Literal else anything.get(get_origin(hint) or hint)
        object.__setattr__(config, other, needed if each.default is MISSING else each.default)
    object.__setattr__(config, name, value)
    return config


@pytest.mark.parametrize("verb", CONFIGURED)
def test_every_bound_of_every_option_is_kept(verb: str) -> None:
    kind = configuration(verb)
    for name, (_, each) in options_of(kind).items():
        hint = str(get_type_hints(kind)[name])
        step = 1e-9 if "float" in hint else 1
        taken = [bound for bound in (each.least, each.most) if bound is not None]
        outside = [bound + by for bound, by in ((each.least, -step), (each.most, step)) if bound is not None]
        outside += [bound for bound in (each.above, each.below) if bound is not None]
        for value in (*taken, *outside):
            config = unchecked(kind, name, (value,) if hint.startswith("tuple") else value)
            if value in taken:
                check_options(config)
                continue
            with pytest.raises(OptionError, match=f"^{re.escape(flag_of(kind, name))} takes a number"):
                check_options(config)


@pytest.mark.parametrize(
    "read",
    [
        lambda three: whole_numbers("--loops", f"1-{three}"),
        lambda three: parse_size(f"{three}GB"),
        lambda three: Budget.parse(f"layers={three}"),
        lambda three: HubText.parse(f"hf:wikitext:a:train[:{three}]"),
        lambda three: check_address(f"localhost:{three}"),
        lambda three: train_robust("demo-vit", methods=("retrained-2", three)),
    ],
)
def test_numbers_are_written_with_the_digits_0_to_9(read: Callable[[str], object]) -> None:
    read("3")
    with pytest.raises(LayerwiseError):
        read("٣")
