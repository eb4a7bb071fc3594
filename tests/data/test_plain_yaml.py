"""YAML is read as plain values, and anything else is refused."""

import doctest

import pytest

from layerwise.bounded import Unreadable
from layerwise.data import plain_yaml
from layerwise.data.plain_yaml import DEPTH, SIZE, parse_yaml


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(plain_yaml).failed == 0


def test_plain_values_are_read() -> None:
    text = "a: [1, -2, 0x10, 1_000, 1:30]\nb: {c: 2.5, d: true, e: null}\nf: 2024-13-45\n'7': text"
    assert parse_yaml(text) == {
        "a": [1, -2, 16, 1000, 90],
        "b": {"c": 2.5, "d": True, "e": None},
        "f": "2024-13-45",
        "7": "text",
    }


def test_depth_and_size_are_read_to_their_bounds() -> None:
    assert parse_yaml("[" * (DEPTH - 1) + "1" + "]" * (DEPTH - 1)) is not None
    with pytest.raises(Unreadable, match="nested too deeply in line 1: at most 50 levels"):
        parse_yaml("[" * DEPTH + "1" + "]" * DEPTH)
    assert parse_yaml("a" * SIZE) == "a" * SIZE
    with pytest.raises(Unreadable, match="at most 262 kB"):
        parse_yaml("a" * (SIZE + 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a 1\nb: *a", r"the alias \*a in line 2"),
        ("a: !!int 1", "the tag .*int in line 1"),
        ("a: ! 1", "the tag ! in line 1"),
        ("a: 1\na: 2", "the key a twice, the second time in line 2"),
        ("- b\n- " + "9" * 5_000, "4,300 digits in line 2"),
        ("0b_", "cannot be read"),
        ("[", "is not YAML"),
        ("a: 1\n---\nb: 2", "is not YAML"),
        ("{[a]: 1}", "is not YAML"),
    ],
)
def test_what_is_more_than_plain_values(text: str, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        parse_yaml(text)
