"""Documents as ids, and segments that cover every document, never cross two, and begin whole sentences."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from data import babylm
from layerwise.data.text.corpus import read_corpus
from layerwise.data.text.division import division
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import Encoded, encode, encoded_rows, paragraphs, sentences
from layerwise.data.text.segments import AROUND, cut, pretraining_text
from layerwise.data.text.vocabulary import PARAGRAPH, TAB, train_wordpiece
from layerwise.errors import DataError

TOKENIZER = train_wordpiece(["Mr. Fox ran. He hid! Did the dog see him?"] * 20, vocabulary=300)
PAR, TABULATOR = TOKENIZER.convert_tokens_to_ids([PARAGRAPH, TAB])


def encoded(lengths_of_sentences: list[list[int]]) -> Encoded:
    rows, last = [], 0
    for number, lengths in enumerate(lengths_of_sentences):
        ids = np.arange(last, last + sum(lengths), dtype=np.int32)
        rows.append({"name": str(number), "ids": ids, "sentences": np.array(lengths, np.int32)})
        last += sum(lengths)
    return Encoded(Dataset.from_list(rows))


def ids_of(text: Encoded) -> list[int]:
    return [token for ids in text.rows["ids"] for token in ids]


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=6),
    st.integers(AROUND + 1, 40),
)
def test_segments_cover_a_document_and_begin_with_the_sentence_that_overflowed(
    corpus: list[list[int]], length: int
) -> None:
    text, room = encoded(corpus), length - AROUND
    segments = cut(text, length)
    tokens = segments.ids(range(len(segments)))
    assert sorted({int(each) for ids in tokens for each in ids}) == ids_of(text)
    bounds = [0, *np.cumsum([length for document in corpus for length in document]).tolist()]
    edges = [0, *np.cumsum([sum(document) for document in corpus]).tolist()]
    rows = [(int(ids[0]), int(ids[-1]) + 1, owner) for ids, owner in zip(tokens, segments.owners, strict=True)]
    for (start, end, owner), ids in zip(rows, tokens, strict=True):
        assert len(ids) == end - start
        assert edges[owner] <= start < end <= edges[owner + 1]
        assert end - start == room or (end - start < room and end in edges), "only the last of a document has room left"
    for (_, end, owner), (following, _, next_owner) in pairwise(rows):
        if owner == next_owner:
            first, last = next(each for each in pairwise(bounds) if each[0] <= end < each[1])
            assert following == (first if last - first <= room else end)


@pytest.mark.parametrize("year", babylm.FOLDERS)
def test_text_laid_out_as_babylm_fills_segments(year: str, tmp_path: Path) -> None:
    corpus = read_corpus(babylm.write(tmp_path, year)["train"])
    for documents in (corpus.documents, division(corpus).parts["train"]):
        segments = cut(encode(TOKENIZER, documents), 128)
        assert np.mean([len(ids) + AROUND for ids in segments.ids(range(len(segments)))]) / 128 >= 0.95


def test_a_paragraph_ends_in_its_token_and_a_tab_is_one() -> None:
    (row,) = encode(TOKENIZER, [Document("one", "The dog ran.\nHe\thid!\n\nDid he?")]).rows
    ids, ends = row["ids"], np.cumsum(row["sentences"])
    assert [index for index, token in enumerate(ids) if token == PAR] == [ends[1] - 1, ends[2] - 1]
    assert ids.count(TABULATOR) == 1
    text = TOKENIZER.decode([token for token in ids if token not in (PAR, TABULATOR)])
    assert text.split() == ["The", "dog", "ran.", "He", "hid!", "Did", "he?"]
    for text in ("\tThe dog ran. He hid!\n\tDid he?", "\tThe dog ran. He hid!\n\n \tDid he?"):
        (row,) = encode(TOKENIZER, [Document("one", text)]).rows
        starts = [0, *np.cumsum(row["sentences"])[:-1]]
        assert [row["ids"][start] == TABULATOR for start in starts] == [True, False, True]


def test_parts_of_one_text_are_one_document_and_no_others_are() -> None:
    parts = [Document("a#0", "He ran.", part_of="a"), Document("a#1", "She did.", part_of="a")]
    other = [Document("b#0", "Who?", part_of="b"), Document("c", "Why?"), Document("d", "Did he?")]
    rows = encode(TOKENIZER, [*parts, *other]).rows
    assert [(row["name"], len(row["sentences"])) for row in rows] == [("a", 2), ("b", 1), ("c", 1), ("d", 1)]


@pytest.mark.parametrize("size", [1, 30, 2**23])
def test_the_size_of_a_batch_changes_nothing(size: int) -> None:
    documents = [Document(str(n), f"The dog {n} ran.\tHe hid! " * n, part_of="a" if n < 3 else None) for n in range(9)]
    skipped: list[str] = []
    rows = list(encoded_rows(TOKENIZER, documents, skipped, size=size))
    whole = encode(TOKENIZER, documents)
    assert [{**row, "ids": list(row["ids"]), "sentences": list(row["sentences"])} for row in rows] == list(whole.rows)
    assert skipped == whole.skipped == ["0"]


def as_gpt2() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["[MASK]"])
    core.train_from_iterator(["Mr. Fox ran. the and [MASK]"], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, mask_token="[MASK]")


@pytest.mark.parametrize("tokenizer", [TOKENIZER, as_gpt2()])
def test_what_looks_like_a_special_token_is_text(tokenizer: PreTrainedTokenizerFast) -> None:
    found = encode(tokenizer, [Document("one", "the [MASK] and [PAR] ran")])
    ids = ids_of(found)
    assert tokenizer.mask_token_id not in ids
    assert ids.count(PAR) == (tokenizer is TOKENIZER)  # that of the paragraph's end
    assert found.tokens == len(ids)


def test_what_holds_nothing_is_skipped_by_name_or_refused() -> None:
    some = encode(TOKENIZER, [Document("empty", " \n "), Document("full", "He ran."), Document("none", "")])
    assert (list(some.rows["name"]), some.skipped) == (["full"], ["empty", "none"])
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
