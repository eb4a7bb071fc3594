"""Chunks: nothing of a text is lost, they end where it lets them, and they are joined again."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import babylm
from layerwise.data.text.chunks import FEWEST, PIECES, WORDS, chunks, joined
from layerwise.data.text.corpus import read_corpus
from layerwise.data.text.documents import Document


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
    text = babylm.LAYOUTS[name](Random(0), "x", 2_000)
    found = chunks(Document(name, text))
    assert len(found) > PIECES / 2
    starts = [each.text.split("\n")[0] for each in found]
    before = [each.text for each in found[:-1]]
    if name == "simple_wiki":
        assert all(start.startswith("= = = ") for start in starts)
    elif name in ("gutenberg", "childes", "open_subtitles"):
        assert all(each.endswith("\n\n") for each in before)
    assert all(each.endswith("\n") for each in before)


def test_a_long_text_gives_chunks_of_two_thousand_words() -> None:
    found = chunks(Document("a", "seven words stand in each such line\n" * 20_000))
    assert {len(each.text.split()) for each in found[:-1]} == {WORDS + -WORDS % 7}


def test_what_cannot_or_must_not_be_cut_stays_whole() -> None:
    for document in (Document("a", "word " * 900), Document("b", "2+2=\n" * 90 + "4", "sums", 450), Document("c", "")):
        assert chunks(document) == (document,)


def test_what_is_left_of_a_text_is_joined_and_no_two_texts_are() -> None:
    parts = chunks(Document("a", "line of four words\n" * 40))
    others = chunks(Document("b", "other line of words\n" * 40))
    left = joined([parts[0], parts[2], others[1], Document("c", "x")])
    assert [(each.id, each.part_of) for each in left] == [("a", None), ("b", None), ("c", None)]
    assert left[0].text == parts[0].text + parts[2].text


@pytest.mark.parametrize("year", babylm.FOLDERS)
def test_files_of_babylm_are_read_unrenamed(year: str, tmp_path: Path) -> None:
    for split, folder in babylm.write(tmp_path, year, train=120).items():
        corpus = read_corpus(folder)
        assert {each.part_of for each in corpus.documents} == {f"{name}.{split}" for name in babylm.LAYOUTS}
        assert [(each.id, each.text) for each in joined(corpus.documents)] == [
            (file.name, file.read_text()) for file in sorted(folder.iterdir())
        ]
        assert all(sum(each.part_of == file.name for each in corpus.documents) > 10 for file in folder.iterdir())
        (one,) = {each.part_of for each in read_corpus(folder / f"childes.{split}").documents}
        assert one == f"childes.{split}"
