"""The generated skills: every answer is right by an independent rule, and the splits never meet."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.data.text import skills
from layerwise.data.text.skills import Example, examples
from layerwise.errors import DataError

seeds = st.integers(0, 10_000)
splits = st.sampled_from(skills.SPLITS)


def _solved(example: Example) -> str:
    """The right answer, found without the generator: Python evaluates, sorts, slices and matches."""
    word, *rest = example.prompt.removesuffix(" =").split(" ")
    if word == "calc":
        terms = re.findall(r"[+-]?\d+", rest[0])
        values = [str(eval("".join(terms[:count]))) for count in range(2, len(terms) + 1)]
    elif word == "close":
        text = "".join(rest)
        while (shorter := re.sub(r"\(\)|\[\]|\{\}", "", text)) != text:
            text = shorter
        values = [{"(": ")", "[": "]", "{": "}"}[mark] for mark in text[::-1]]
    else:
        values = {"copy": rest, "reverse": rest[::-1], "sort": sorted(rest)}[word]
    return f" {' '.join(values)}\n"


@given(st.sampled_from(skills.TASKS), splits, seeds)
def test_every_answer_is_right(task: str, split: str, seed: int) -> None:
    for example in examples(task, split, 5, seed):
        assert example.task == task
        assert example.answer == _solved(example)
        assert len(example.answer) > 2
        assert skills.split_of(example.prompt) == split


@given(splits, seeds)
def test_arithmetic_stays_in_its_range(split: str, seed: int) -> None:
    for example in examples("arithmetic", split, 5, seed):
        start, *operands = map(int, re.findall(r"\d+", example.prompt))
        values = [start, *map(int, example.answer.split())]
        assert len(values) == len(operands) + 1
        assert 2 <= len(operands) <= 4
        assert all(1 <= operand <= 9 for operand in operands)
        assert all(10 <= value <= 99 for value in values)


@pytest.mark.parametrize("task", skills.TASKS)
def test_splits_are_disjoint_whatever_the_seed(task: str) -> None:
    train = {example.prompt for seed in range(3) for example in examples(task, "train", 300, seed)}
    heldout = {example.prompt for seed in range(3) for example in examples(task, "heldout", 100, seed)}
    assert not train & heldout


@pytest.mark.parametrize("task", skills.TASKS)
def test_a_list_is_decided_by_its_seed_holds_no_repeats_and_extends(task: str) -> None:
    first = examples(task, "heldout", 200, seed=3)
    assert examples(task, "heldout", 50, seed=3) == first[:50]
    assert len({example.prompt for example in first}) == 200
    assert examples(task, "heldout", 200, seed=4) != first


def test_the_generators_are_frozen() -> None:
    """The published figures of the demo model hold for these very questions."""
    assert [examples(task, "heldout", 1)[0].text for task in skills.TASKS] == [
        "calc 72+4+5+3-3 = 76 81 84 81\n",
        "reverse s q t m = m t q s\n",
        "sort v j w l h y = h j l v w y\n",
        "close { } [ { } ] [ ( ) ] [ = ]\n",
    ]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(DataError, match="did you mean arithmetic"):
        examples("arithmetics", "train", 1)
    with pytest.raises(DataError, match="did you mean heldout"):
        examples("sort", "held_out", 1)
