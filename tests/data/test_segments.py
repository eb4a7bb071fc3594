"""Segments cover every document once, never reach over two, and keep sentences whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.data.documents import Document
from layerwise.data.segments import AROUND, Encoded, cut, encode, paragraphs, pretraining_text, sentences
from layerwise.data.wordpiece import PARAGRAPH, TAB, train_wordpiece
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
def test_every_token_is_in_one_segment_of_its_own_document(corpus: list[list[int]], length: int) -> None:
    text = encoded(corpus)
    segments = cut(text, length)
    assert np.concatenate([segments.ids(number) for number in range(len(segments))]).tolist() == text.ids.tolist()
    edges = text.sentences[text.documents]
    for start, end, owner in zip(segments.starts, segments.ends, segments.owners, strict=True):
        assert edges[owner] <= start < end <= edges[owner + 1]
        assert end - start <= length - AROUND


@given(corpora, lengths)
def test_a_sentence_is_cut_only_when_it_is_longer_than_a_segment(corpus: list[list[int]], length: int) -> None:
    text = encoded(corpus)
    inner = set(cut(text, length).starts.tolist()) - set(text.sentences.tolist())
    for start, end in pairwise(text.sentences.tolist()):
        broken = [place for place in inner if start < place < end]
        assert not broken or end - start > length - AROUND


@given(corpora, lengths)
def test_a_segment_ends_only_where_the_next_sentence_does_not_fit(corpus: list[list[int]], length: int) -> None:
    text = encoded(corpus)
    segments = cut(text, length)
    ends_of_sentences = text.sentences.tolist()
    rows = list(zip(segments.starts.tolist(), segments.ends.tolist(), segments.owners.tolist(), strict=True))
    for (start, end, owner), (_, _, following) in pairwise(rows):
        if owner == following:
            next_end = min(place for place in ends_of_sentences if place > end)
            assert next_end - start > length - AROUND


def test_a_segment_without_room_is_refused() -> None:
    with pytest.raises(DataError, match="length of 3 or more"):
        cut(encoded([[3]]), 2)


def test_a_paragraph_ends_in_its_token_and_a_tab_is_one() -> None:
    found = encode(TOKENIZER, [Document("one", "The dog ran.\nHe\thid!\n\nDid he?")])
    ids = found.ids.tolist()
    assert [place for place, token in enumerate(ids) if token == PAR] == [
        found.sentences[2] - 1, found.sentences[3] - 1,
    ]  # fmt: skip
    assert ids.count(TABULATOR) == 1
    text = TOKENIZER.decode([token for token in ids if token not in (PAR, TABULATOR)])
    assert text.split() == ["The", "dog", "ran.", "He", "hid!", "Did", "he?"]


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
