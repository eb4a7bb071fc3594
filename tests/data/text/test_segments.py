"""Segments cover every document, never reach over two, are full but for the last, and begin sentences whole."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import babylm
from layerwise.data.text.corpus import read_corpus
from layerwise.data.text.division import division
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import Encoded, encode
from layerwise.data.text.segments import AROUND, cut, pretraining_text
from layerwise.data.text.sentences import paragraphs, sentences
from layerwise.data.text.wordpiece import PARAGRAPH, TAB, train_wordpiece
from layerwise.errors import DataError

TOKENIZER = train_wordpiece(["Mr. Fox ran. He hid! Did the dog see him?"] * 20, vocabulary=300)
PAR, TABULATOR = TOKENIZER.convert_tokens_to_ids([PARAGRAPH, TAB])

corpora = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=6)
lengths = st.integers(AROUND + 1, 40)


def encoded(lengths_of_sentences: list[list[int]]) -> Encoded:
    """Documents whose sentences have these lengths; ids count up."""
    flat = [length for document in lengths_of_sentences for length in document]
    bounds = np.concatenate([[0], np.cumsum(flat)])
    documents = np.concatenate([[0], np.cumsum([len(document) for document in lengths_of_sentences])])
    names = tuple(map(str, range(len(lengths_of_sentences))))
    return Encoded(np.arange(bounds[-1], dtype=np.int32), bounds, documents, names)


@given(corpora, lengths)
def test_every_token_is_in_a_segment_of_its_own_document(corpus: list[list[int]], length: int) -> None:
    text = encoded(corpus)
    segments = cut(text, length)
    assert sorted({int(each) for number in range(len(segments)) for each in segments.ids(number)}) == text.ids.tolist()
    edges = text.sentences[text.documents]
    for start, end, owner in zip(segments.starts, segments.ends, segments.owners, strict=True):
        assert edges[owner] <= start < end <= edges[owner + 1]
        assert end - start <= length - AROUND


@given(corpora, lengths)
def test_only_the_last_segment_of_a_document_has_room_left(corpus: list[list[int]], length: int) -> None:
    text = encoded(corpus)
    segments = cut(text, length)
    edges = text.sentences[text.documents].tolist()
    for end, start in zip(segments.ends.tolist(), segments.starts.tolist(), strict=True):
        assert end - start == length - AROUND or end in edges


@given(corpora, lengths)
def test_a_sentence_that_overflows_begins_the_next_segment_whole(corpus: list[list[int]], length: int) -> None:
    text = encoded(corpus)
    segments = cut(text, length)
    sentences_of = list(pairwise(text.sentences.tolist()))
    rows = list(zip(segments.starts.tolist(), segments.ends.tolist(), segments.owners.tolist(), strict=True))
    for (_, end, owner), (following, _, next_owner) in pairwise(rows):
        if owner == next_owner:
            first, last = next((first, last) for first, last in sentences_of if first <= end < last)
            assert following == (first if last - first <= length - AROUND else end)


def test_a_segment_without_room_is_refused() -> None:
    with pytest.raises(DataError, match="length of 3 or more"):
        cut(encoded([[3]]), 2)


def test_a_paragraph_ends_in_its_token_and_a_tab_is_one() -> None:
    found = encode(TOKENIZER, [Document("one", "The dog ran.\nHe\thid!\n\nDid he?")])
    ids = found.ids.tolist()
    assert [index for index, token in enumerate(ids) if token == PAR] == [
        found.sentences[2] - 1, found.sentences[3] - 1,
    ]  # fmt: skip
    assert ids.count(TABULATOR) == 1
    text = TOKENIZER.decode([token for token in ids if token not in (PAR, TABULATOR)])
    assert text.split() == ["The", "dog", "ran.", "He", "hid!", "Did", "he?"]


@pytest.mark.parametrize("text", ["\tThe dog ran. He hid!\n\tDid he?", "\tThe dog ran. He hid!\n\n \tDid he?"])
def test_a_tab_that_begins_a_line_is_its_first_token(text: str) -> None:
    found = encode(TOKENIZER, [Document("one", text)])
    first = found.ids[found.sentences[:-1]].tolist()
    assert [token == TABULATOR for token in first] == [True, False, True]
    assert found.ids.tolist().count(TABULATOR) == 2


def test_parts_of_one_text_are_one_document_and_no_others_are() -> None:
    parts = [Document("a#0", "He ran.", part_of="a"), Document("a#1", "She did.", part_of="a")]
    other = [Document("b#0", "Who?", part_of="b"), Document("c", "Why?"), Document("d", "Did he?")]
    found = encode(TOKENIZER, [*parts, *other])
    assert found.names == ("a", "b", "c", "d")
    assert np.diff(found.documents).tolist() == [2, 1, 1, 1]


def test_utterances_are_paragraphs_and_wrapped_lines_are_not() -> None:
    talk = "Hi.\nDo you know who that was at the door?\nNo.\n\nWell, I do.\nWho?"
    assert paragraphs(talk) == [line for line in talk.split("\n") if line]
    prose = "\n\n".join(
        ["It was late, and the road was long and\nnobody knew how far it was to the town,\nso they slept."] * 3
    )
    assert len(paragraphs(prose)) == 3


@pytest.mark.parametrize("year", babylm.FOLDERS)
def test_text_laid_out_as_babylm_fills_segments(year: str, tmp_path: Path) -> None:
    folders = babylm.write(tmp_path, year)
    corpus = read_corpus(folders["train"])
    parts = {"as it is": corpus.documents, "a share held out": division(corpus).parts["train"]}
    for documents in parts.values():
        segments = cut(encode(TOKENIZER, documents), 128)
        assert (segments.ends - segments.starts + AROUND).mean() / 128 >= 0.95
    rebuilt = "".join(each.text for each in corpus.documents)
    assert rebuilt == "".join(file.read_text() for file in sorted(folders["train"].iterdir()))


def test_what_looks_like_a_special_token_is_text() -> None:
    ids = encode(TOKENIZER, [Document("one", "the [MASK] and [PAR] ran")]).ids.tolist()
    assert TOKENIZER.mask_token_id not in ids
    assert ids.count(PAR) == 1  # that of the paragraph's end


def test_documents_without_a_word_are_skipped_by_name() -> None:
    some = encode(TOKENIZER, [Document("empty", " \n "), Document("full", "He ran."), Document("none", "")])
    assert (some.names, some.skipped) == (("full",), ("empty", "none"))
    with pytest.raises(DataError, match=r"none of the 1 document"):
        encode(TOKENIZER, [Document("empty", "\n")])


@pytest.mark.parametrize(
    ("paragraph", "found"),
    [
        ("Mr. Fox ran. He hid!", ["Mr. Fox ran.", "He hid!"]),
        ("J. R. Hall sat. I did too. So?", ["J. R. Hall sat.", "I did too.", "So?"]),
        ('"Stop!" She ran.', ['"Stop!"', "She ran."]),
        ("version 3.12 of it. 4 more", ["version 3.12 of it.", "4 more"]),
        ("See e.g. Smith. then on", ["See e.g. Smith. then on"]),
    ],
)
def test_sentences(paragraph: str, found: list[str]) -> None:
    assert sentences(paragraph) == found


@given(st.text(st.sampled_from("aB.!? \n\t"), max_size=60))
def test_no_character_is_lost(text: str) -> None:
    joined = "".join(sentence for block in paragraphs(text) for sentence in sentences(block))
    assert "".join(joined.split()) == "".join(text.split())


def test_who_waits_is_told_the_part_and_the_share() -> None:
    told: list[tuple[str, float]] = []
    two = [Document("one", "He ran."), Document("two", "She did.")]
    parts = {"train": two, "validation": two[:1], "test": two[1:]}
    pretraining_text(TOKENIZER, "mine", parts, lambda part, share: told.append((part, share)))
    assert told == [("encoding train", 0.0), ("encoding train", 0.5), ("encoding validation", 0), ("encoding test", 0)]


def test_the_digest_knows_the_parts() -> None:
    one, two, three = (Document(name, f"He {name} ran.") for name in "abc")
    parts = {"train": [one], "validation": [two], "test": [three]}
    text = pretraining_text(TOKENIZER, "mine", parts)
    assert text.digest == pretraining_text(TOKENIZER, "other", parts).digest
    assert text.digest != pretraining_text(TOKENIZER, "mine", {**parts, "train": [two], "validation": [one]}).digest
