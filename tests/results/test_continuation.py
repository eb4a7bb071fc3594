"""Continuations are stored as notes and read back; other notes are ignored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.results.rows import CONTINUATION, Continuation, Note, read_continuations

NUMBERS = st.integers(0, 99)


@given(st.lists(st.builds(Continuation, st.text(), st.text(), st.text(), NUMBERS, NUMBERS), max_size=4))
def test_continuations_round_trip(continuations: list[Continuation]) -> None:
    assert read_continuations(each.note() for each in continuations) == tuple(continuations)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "no json",
        "[" * 100_000,
        '{"plan": 1, "prompt": "", "text": "", "tokens": 1}',
        Continuation("0", "a", "b", True, 1).note().text,
        "\ud800",
    ],
)
def test_other_notes_are_ignored(text: str) -> None:
    notes = [Note(CONTINUATION, text), Note("plans", Continuation("0", "a", "b", 1, 1).note().text)]
    assert read_continuations(notes) == ()
