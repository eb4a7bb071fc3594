"""Documents, excerpts and chunks: no text is lost, and chunks end where it allows."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import babylm
from layerwise.data.text.corpus import read_corpus
from layerwise.data.text.documents import FEWEST, PIECES, WORDS, Document, chunks, excerpt, joined
from layerwise.errors import DataError


def test_what_is_no_answer_is_refused() -> None:
    document, plain = Document("sum", "2+2=4", answer_start=4), Document("one", "some text")
    assert (document.prompt, document.answer) == ("2+2=", "4")
    assert (plain.prompt, plain.answer, plain.task) == ("", "some text", "text")
    for start in (-1, 0, 5, 6):
        with pytest.raises(DataError, match="between 1 and 4"):
            Document("sum", "2+2=4", answer_start=start)
    with pytest.raises(DataError, match="lone surrogate"):
        Document("broken", "before \ud800 after")


def test_an_excerpt_starts_with_a_line_where_it_can_and_short_texts_and_answers_stay_whole() -> None:
    lines = Document("lines", "\n".join(f"line {number} of many" for number in range(100)))
    found = [excerpt(lines, 60, Random(seed)).text for seed in range(30)]
    assert all(text in lines.text and text.startswith("line ") and 0 < len(text) <= 60 for text in found)
    assert len(set(found)) > 10
    assert len(excerpt(Document("one", "x" * 1000), 60, Random(1)).text) == 60
    for whole in (Document("short", "abc"), Document("sum", "1" * 99 + "=9", answer_start=100)):
        assert excerpt(whole, 3, Random(0)) is whole


@given(st.lists(st.sampled_from(["one two three", "", "= = = A = = =", "a " * 30, "*** B ***", "  "]), max_size=60))
def test_no_character_is_lost_and_parts_join_to_the_whole(lines: list[str]) -> None:
    document = Document("a", "\n".join(lines), "prose")
    found = chunks(document)
    assert "".join(each.text for each in found) == document.text
    assert joined(found) == (document,)
    if len(found) > 1:
        assert all(len(each.text.split()) >= FEWEST for each in found)
        assert [(each.id, each.part_of, each.task) for each in found] == [
            (f"a#{number}", "a", "prose") for number in range(len(found))
        ]


@pytest.mark.parametrize("name", babylm.LAYOUTS)
def test_chunks_end_where_the_layout_lets_them(name: str) -> None:
    found = chunks(Document(name, babylm.LAYOUTS[name](Random(0), "x", 2_000)))
    assert len(found) > PIECES / 2
    if name == "simple_wiki":
        assert all(each.text.startswith("= = = ") for each in found)
    ending = "\n\n" if name in ("gutenberg", "childes", "open_subtitles") else "\n"
    assert all(each.text.endswith(ending) for each in found[:-1])


def test_a_long_text_gives_chunks_of_two_thousand_words_and_what_must_not_be_cut_stays_whole() -> None:
    found = chunks(Document("a", "seven words stand in each such line\n" * 20_000))
    assert {len(each.text.split()) for each in found[:-1]} == {WORDS + -WORDS % 7}
    for document in (Document("a", "word " * 900), Document("b", "2+2=\n" * 90 + "4", "sums", 450), Document("c", "")):
        assert chunks(document) == (document,)


def test_what_is_left_of_a_text_is_joined_and_no_two_texts_are() -> None:
    parts, others = (chunks(Document(name, f"line {name} of words\n" * 40)) for name in "ab")
    left = joined([parts[0], parts[2], others[1], Document("c", "x")])
    assert [(each.id, each.part_of) for each in left] == [("a", None), ("b", None), ("c", None)]
    assert left[0].text == parts[0].text + parts[2].text


@pytest.mark.parametrize("year", babylm.FOLDERS)
def test_files_of_babylm_are_read_unrenamed(year: str, tmp_path: Path) -> None:
    for split, folder in babylm.write(tmp_path, year, train=120).items():
        corpus = read_corpus(folder)
        assert [(each.id, each.text) for each in joined(corpus.documents)] == [
            (file.name, file.read_text()) for file in sorted(folder.iterdir())
        ]
        assert all(sum(each.part_of == file.name for each in corpus.documents) > 10 for file in folder.iterdir())
        (one,) = {each.part_of for each in read_corpus(folder / f"childes.{split}").documents}
        assert one == f"childes.{split}"
