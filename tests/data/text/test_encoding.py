"""Documents as ids, and segments, which cover every document, never reach over two, and begin sentences whole."""

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
from layerwise.data.text.encoding import Encoded, encode, paragraphs, sentences
from layerwise.data.text.segments import AROUND, cut, pretraining_text
from layerwise.data.text.vocabulary import PARAGRAPH, TAB, train_wordpiece
from layerwise.errors import DataError

TOKENIZER = train_wordpiece(["Mr. Fox ran. He hid! Did the dog see him?"] * 20, vocabulary=300)
PAR, TABULATOR = TOKENIZER.convert_tokens_to_ids([PARAGRAPH, TAB])


def encoded(lengths_of_sentences: list[list[int]]) -> Encoded:
    """Documents whose sentences have these lengths; ids count up."""
    flat = [length for document in lengths_of_sentences for length in document]
    bounds = np.concatenate([[0], np.cumsum(flat)])
    documents = np.concatenate([[0], np.cumsum([len(document) for document in lengths_of_sentences])])
    names = tuple(map(str, range(len(lengths_of_sentences))))
    return Encoded(np.arange(bounds[-1], dtype=np.int32), bounds, documents, names)


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=6),
    st.integers(AROUND + 1, 40),
)
def test_segments_cover_a_document_and_begin_with_the_sentence_that_overflowed(
    corpus: list[list[int]], length: int
) -> None:
    text, room = encoded(corpus), length - AROUND
    segments = cut(text, length)
    assert sorted({int(each) for number in range(len(segments)) for each in segments.ids(number)}) == text.ids.tolist()
    edges = text.sentences[text.documents].tolist()
    rows = list(zip(segments.starts.tolist(), segments.ends.tolist(), segments.owners.tolist(), strict=True))
    for start, end, owner in rows:
        assert edges[owner] <= start < end <= edges[owner + 1]
        assert end - start == room or (end - start < room and end in edges), "only the last of a document has room left"
    for (_, end, owner), (following, _, next_owner) in pairwise(rows):
        if owner == next_owner:
            first, last = next(each for each in pairwise(text.sentences.tolist()) if each[0] <= end < each[1])
            assert following == (first if last - first <= room else end)


@pytest.mark.parametrize("year", babylm.FOLDERS)
def test_text_laid_out_as_babylm_fills_segments(year: str, tmp_path: Path) -> None:
    corpus = read_corpus(babylm.write(tmp_path, year)["train"])
    for documents in (corpus.documents, division(corpus).parts["train"]):
        segments = cut(encode(TOKENIZER, documents), 128)
        assert (segments.ends - segments.starts + AROUND).mean() / 128 >= 0.95


def test_a_paragraph_ends_in_its_token_and_a_tab_is_one() -> None:
    found = encode(TOKENIZER, [Document("one", "The dog ran.\nHe\thid!\n\nDid he?")])
    ids = found.ids.tolist()
    ends = [found.sentences[2] - 1, found.sentences[3] - 1]
    assert [index for index, token in enumerate(ids) if token == PAR] == ends
    assert ids.count(TABULATOR) == 1
    text = TOKENIZER.decode([token for token in ids if token not in (PAR, TABULATOR)])
    assert text.split() == ["The", "dog", "ran.", "He", "hid!", "Did", "he?"]
    for text in ("\tThe dog ran. He hid!\n\tDid he?", "\tThe dog ran. He hid!\n\n \tDid he?"):
        found = encode(TOKENIZER, [Document("one", text)])
        assert [token == TABULATOR for token in found.ids[found.sentences[:-1]]] == [True, False, True]


def test_parts_of_one_text_are_one_document_and_no_others_are() -> None:
    parts = [Document("a#0", "He ran.", part_of="a"), Document("a#1", "She did.", part_of="a")]
    other = [Document("b#0", "Who?", part_of="b"), Document("c", "Why?"), Document("d", "Did he?")]
    found = encode(TOKENIZER, [*parts, *other])
    assert found.names == ("a", "b", "c", "d")
    assert np.diff(found.documents).tolist() == [2, 1, 1, 1]


@pytest.mark.parametrize("size", [1, 30, 2**23])
def test_batches_change_nothing_and_their_ids_can_be_written_as_they_are_encoded(size: int) -> None:
    documents = [Document(str(n), f"The dog {n} ran.\tHe hid! " * n, part_of="a" if n < 3 else None) for n in range(9)]
    whole, rows = encode(TOKENIZER, documents), list[np.ndarray]()
    written = encode(TOKENIZER, documents, write=rows.append, size=size)
    assert np.array_equal(np.concatenate(rows), whole.ids)
    assert len(written.ids) == 0
    for name in ("sentences", "documents", "names", "skipped"):
        assert np.array_equal(getattr(written, name), getattr(whole, name))


def test_what_looks_like_a_special_token_is_text() -> None:
    ids = encode(TOKENIZER, [Document("one", "the [MASK] and [PAR] ran")]).ids.tolist()
    assert TOKENIZER.mask_token_id not in ids
    assert ids.count(PAR) == 1  # that of the paragraph's end


def test_what_holds_nothing_is_skipped_by_name_or_refused() -> None:
    some = encode(TOKENIZER, [Document("empty", " \n "), Document("full", "He ran."), Document("none", "")])
    assert (some.names, some.skipped) == (("full",), ("empty", "none"))
    with pytest.raises(DataError, match=r"none of the 1 document"):
        encode(TOKENIZER, [Document("empty", "\n")])
    with pytest.raises(DataError, match="length of 3 or more"):
        cut(some, 2)


SENTENCES = [
    ("Mr. Fox ran. He hid!", ["Mr. Fox ran.", "He hid!"]),
    ("J. R. Hall sat. I did too. So?", ["J. R. Hall sat.", "I did too.", "So?"]),
    ('"Stop!" She ran.', ['"Stop!"', "She ran."]),
    ("version 3.12 of it. 4 more", ["version 3.12 of it.", "4 more"]),
    ("See e.g. Smith. then on", ["See e.g. Smith. then on"]),
]


def test_sentences_and_paragraphs() -> None:
    assert [sentences(paragraph) for paragraph, _ in SENTENCES] == [found for _, found in SENTENCES]
    talk = "Hi.\nDo you know who that was at the door?\nNo.\n\nWell, I do.\nWho?"
    assert paragraphs(talk) == [line for line in talk.split("\n") if line]
    wrapped = "It was late, and the road was long and\nnobody knew how far it was to the town,\nso they slept."
    assert len(paragraphs("\n\n".join([wrapped] * 3))) == 3


@given(st.text(st.sampled_from("aB.!? \n\t"), max_size=60))
def test_no_character_is_lost(text: str) -> None:
    joined = "".join(sentence for block in paragraphs(text) for sentence in sentences(block))
    assert "".join(joined.split()) == "".join(text.split())


def test_a_text_of_three_parts_has_their_digest_and_tells_its_progress() -> None:
    told: list[tuple[str, float]] = []
    one, two, three = (Document(name, f"He {name} ran.") for name in "abc")
    parts = {"train": [one, two], "validation": [two], "test": [three]}
    text = pretraining_text(TOKENIZER, "mine", parts, lambda part, share: told.append((part, share)))
    assert told == [("encoding train", 0.0), ("encoding train", 0.5), ("encoding validation", 0), ("encoding test", 0)]
    assert text.digest == pretraining_text(TOKENIZER, "other", parts).digest
    assert text.digest != pretraining_text(TOKENIZER, "mine", {**parts, "train": [two], "validation": [one]}).digest
