"""An argument has one home: its type and its bounds hold for Python, YAML and the command line alike."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from layerwise.data.text.sources import HubText
from layerwise.errors import LayerwiseError, OptionError
from layerwise.runner.arguments import Metavar, Range, Trait
from layerwise.runner.plan_choice import parse_numbers
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.verb import Verb, verb
from layerwise.search.budget import Budget
from layerwise.studies.save.verb import parse_size
from layerwise.swarm.cluster.connection import check_address
from layerwise.train.methods import Options
from layerwise.train.methods import recipe as make_recipe


@verb("small")
def small(
    model: Annotated[str, Trait.LOCATION, Metavar("MODEL")],
    *,
    count: Annotated[int | None, Range(least=1, most=9)] = None,
    share: Annotated[float, Range(least=0)] = 0.5,
    folder: str | Path | None = None,
    names: Sequence[str] = (),
    choice: Literal["left", "right"] = "left",
    switch: bool = False,
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Return what it was given."""
    return {name: value for name, value in locals().items() if name != "reporter"}


SMALL: Verb = small.__verb__  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "count must be at least 1 and at most 9, got 0."),
        ({"count": "three"}, "count must be a whole number, got 'three'."),
        ({"count": True}, "count must be a whole number, got True."),
        ({"share": float("nan")}, "share must be finite"),
        ({"share": -1.0}, "share must be at least 0"),
        ({"share": 2.0**60}, "share must be at most 9,007,199,254,740,992"),
        ({"folder": 3}, "folder must be a string or a path, got 3."),
        ({"names": {"a": 1}}, "names must be a list"),
        ({"names": ["a", ""]}, "names must not contain an empty string."),
        ({"folder": "a\0b"}, "folder must not contain a null byte"),
        ({"choice": "lef"}, "choice must be one of left, right, got 'lef'. Did you mean left?"),
        ({"switch": 1}, "switch must be true or false"),
        ({"model": ""}, "model must not be empty."),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refusal:
        small(**{"model": "here", "reporter": Silent(), **values})
    assert message in str(refusal.value)


def test_plain_values_become_typed_ones_and_come_back() -> None:
    content = {"model": "here", "count": 3, "share": 1, "folder": "runs/a", "names": ["a", "b"], "switch": True}
    call = SMALL(**content)
    assert call.call(Silent()) == {
        **content,
        "folder": Path("runs/a"),
        "names": ("a", "b"),
        "share": 1.0,
        "choice": "left",
    }
    assert SMALL(**SMALL.given(call.options)) == call
    assert SMALL.given(SMALL(model="here", share=0.5, count=2).options) == {"model": "here", "count": 2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": "here", "cuont": 3}, "has no option 'cuont'; did you mean count?"),
        ({"count": 3}, "MODEL is required"),
    ],
)
def test_a_file_is_refused_with_the_option_and_what_to_write(content: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refusal:
        SMALL(**content)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "read",
    [
        lambda three: parse_numbers("--loops", f"1-{three}"),
        lambda three: parse_size(f"{three}GB"),
        lambda three: Budget.parse(f"layers={three}"),
        lambda three: HubText.parse(f"hf:wikitext:a:train[:{three}]"),
        lambda three: check_address(f"localhost:{three}"),
        lambda three: make_recipe(f"retrained-{three}", Options(), 12),
    ],
)
def test_numbers_are_written_with_the_digits_0_to_9(read: Callable[[str], object]) -> None:
    read("3")
    with pytest.raises(LayerwiseError):
        read("٣")
