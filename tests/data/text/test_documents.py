from __future__ import annotations

from random import Random

import pytest

from layerwise.data.text.documents import Document, excerpt
from layerwise.errors import DataError


def test_a_plain_text_is_all_answer() -> None:
    document = Document("one", "some text")
    assert (document.prompt, document.answer, document.task) == ("", "some text", "text")


def test_an_answer_splits_the_text_at_its_character() -> None:
    document = Document("sum", "2+2=4", answer_start=4)
    assert (document.prompt, document.answer) == ("2+2=", "4")


@pytest.mark.parametrize("start", [-1, 0, 5, 6])
def test_an_answer_outside_the_text_is_refused_with_the_legal_range(start: int) -> None:
    with pytest.raises(DataError, match="between 1 and 4"):
        Document("sum", "2+2=4", answer_start=start)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(DataError, match="lone surrogate"):
        Document("broken", "before \ud800 after")


def test_an_excerpt_starts_with_a_line_where_it_can() -> None:
    lines = Document("lines", "\n".join(f"line {number} of many" for number in range(100)))
    starts = set()
    for seed in range(30):
        cut = excerpt(lines, 60, Random(seed))
        assert cut.text in lines.text
        assert cut.text.startswith("line ")
        assert 0 < len(cut.text) <= 60
        starts.add(lines.text.index(cut.text))
    assert len(starts) > 10


def test_an_excerpt_of_one_long_line_is_as_long_as_asked() -> None:
    assert len(excerpt(Document("one", "x" * 1000), 60, Random(1)).text) == 60


def test_short_texts_and_answers_stay_whole() -> None:
    short, answered = Document("short", "abc"), Document("sum", "1" * 99 + "=9", answer_start=100)
    assert excerpt(short, 3, Random(0)) is short
    assert excerpt(answered, 10, Random(0)) is answered
