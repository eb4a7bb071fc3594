"""Documents become segments of complete sentences, and span masking depends only on the index."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator, Philox, SeedSequence
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from data import babylm
from layerwise.data.batches import IGNORED
from layerwise.data.text.corpus import read_corpus
from layerwise.data.text.division import divide_documents
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import Encoded, encode_documents, encode_rows, split_paragraphs, split_sentences
from layerwise.data.text.segments import AROUND, cut_segments, hash_parts
from layerwise.data.text.span_masking import MAX_SPAN, Draw, FixedMasks, MaskedSegments, SpanMasking, draw_uniforms
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
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=6), st.integers(AROUND + 1, 40)
)
def test_segments_cover_documents_by_sentences(corpus: list[list[int]], length: int) -> None:
    text, room = encoded(corpus), length - AROUND
    segments = cut_segments(text, length)
    tokens = segments.ids(range(len(segments)))
    assert sorted({int(each) for ids in tokens for each in ids}) == ids_of(text)
    bounds = [0, *np.cumsum([length for document in corpus for length in document]).tolist()]
    edges = [0, *np.cumsum([sum(document) for document in corpus]).tolist()]
    rows = [(int(ids[0]), int(ids[-1]) + 1, owner) for ids, owner in zip(tokens, segments.owners, strict=True)]
    for (start, end, owner), ids in zip(rows, tokens, strict=True):
        assert len(ids) == end - start
        assert edges[owner] <= start < end <= edges[owner + 1]
        assert end - start == room or (end - start < room and end in edges), "only the last of a document is not full"
    for (_, end, owner), (following, _, next_owner) in pairwise(rows):
        if owner == next_owner:
            first, last = next(each for each in pairwise(bounds) if each[0] <= end < each[1])
            assert following == (first if last - first <= room else end)


@pytest.mark.parametrize("year", babylm.FOLDERS)
def test_babylm_text_fills_segments(year: str, tmp_path: Path) -> None:
    corpus = read_corpus(babylm.write(tmp_path, year)["train"])
    for documents in (corpus.documents, divide_documents(corpus).parts["train"]):
        segments = cut_segments(encode_documents(TOKENIZER, documents), 128)
        assert np.mean([len(ids) + AROUND for ids in segments.ids(range(len(segments)))]) / 128 >= 0.95


def test_paragraph_and_tab_tokens() -> None:
    (row,) = encode_documents(TOKENIZER, [Document("one", "The dog ran.\nHe\thid!\n\nDid he?")]).rows
    ids, ends = row["ids"], np.cumsum(row["sentences"])
    assert [index for index, token in enumerate(ids) if token == PAR] == [ends[1] - 1, ends[2] - 1]
    assert ids.count(TABULATOR) == 1
    text = TOKENIZER.decode([token for token in ids if token not in (PAR, TABULATOR)])
    assert text.split() == ["The", "dog", "ran.", "He", "hid!", "Did", "he?"]
    for text in ("\tThe dog ran. He hid!\n\tDid he?", "\tThe dog ran. He hid!\n\n \tDid he?"):
        (row,) = encode_documents(TOKENIZER, [Document("one", text)]).rows
        starts = [0, *np.cumsum(row["sentences"])[:-1]]
        assert [row["ids"][start] == TABULATOR for start in starts] == [True, False, True]


def test_only_parts_of_one_text_are_joined() -> None:
    parts = [Document("a#0", "He ran.", part_of="a"), Document("a#1", "She did.", part_of="a")]
    other = [Document("b#0", "Who?", part_of="b"), Document("c", "Why?"), Document("d", "Did he?")]
    rows = encode_documents(TOKENIZER, [*parts, *other]).rows
    assert [(row["name"], len(row["sentences"])) for row in rows] == [("a", 2), ("b", 1), ("c", 1), ("d", 1)]


@pytest.mark.parametrize("size", [1, 30, 2**23])
def test_encoding_is_independent_of_the_batch_size(size: int) -> None:
    documents = [Document(str(n), f"The dog {n} ran.\tHe hid! " * n, part_of="a" if n < 3 else None) for n in range(9)]
    skipped: list[str] = []
    rows = list(encode_rows(TOKENIZER, documents, skipped, size=size))
    whole = encode_documents(TOKENIZER, documents)
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
def test_special_token_strings_in_text_are_text(tokenizer: PreTrainedTokenizerFast) -> None:
    found = encode_documents(tokenizer, [Document("one", "the [MASK] and [PAR] ran")])
    ids = ids_of(found)
    assert tokenizer.mask_token_id not in ids
    assert ids.count(PAR) == (tokenizer is TOKENIZER)  # that of the paragraph's end
    assert found.tokens == len(ids)


def test_empty_texts_invalid_shares_and_stops_are_rejected() -> None:
    some = encode_documents(TOKENIZER, [Document("empty", " \n "), Document("full", "He ran."), Document("none", "")])
    assert (list(some.rows["name"]), some.skipped) == (["full"], ["empty", "none"])
    with pytest.raises(DataError, match="At least one of the 1 document"):
        encode_documents(TOKENIZER, [Document("empty", "\n")])
    with pytest.raises(DataError, match="at least 3"):
        cut_segments(some, 2)

    for share in (0.0, 1.0, -0.1):
        with pytest.raises(DataError, match="between 0 and 1"):
            SpanMasking.of(ENGLISH, share)
    for stop in (0.0, 1.5):
        with pytest.raises(DataError, match="above 0 and at most 1"):
            SpanMasking.of(ENGLISH, stop=stop)


SENTENCES = [
    ("Mr. Fox ran. He hid!", ["Mr. Fox ran.", "He hid!"]),
    ("J. R. Hall sat. I did too. So?", ["J. R. Hall sat.", "I did too.", "So?"]),
    ('"Stop!" She ran.', ['"Stop!"', "She ran."]),
    ("version 3.12 of it. 4 more", ["version 3.12 of it.", "4 more"]),
    ("See e.g. Smith. then on", ["See e.g. Smith. then on"]),
]


def test_sentences_and_paragraphs() -> None:
    assert [split_sentences(paragraph) for paragraph, _ in SENTENCES] == [found for _, found in SENTENCES]
    talk = "Hi.\nDo you know who that was at the door?\nNo.\n\nWell, I do.\nWho?"
    assert split_paragraphs(talk) == [line for line in talk.split("\n") if line]
    wrapped = "It was late, and the road was long and\nnobody knew how far it was to the town,\nso they slept."
    assert len(split_paragraphs("\n\n".join([wrapped] * 3))) == 3


@given(st.text(st.sampled_from("aB.!? \n\t"), max_size=60))
def test_encoding_loses_no_character(text: str) -> None:
    joined = "".join(sentence for block in split_paragraphs(text) for sentence in split_sentences(block))
    assert "".join(joined.split()) == "".join(text.split())


def test_a_three_part_corpus_hashes_its_parts() -> None:
    one, two, three = (Document(name, f"He {name} ran.") for name in "abc")
    parts = {"train": [one, two], "validation": [two], "test": [three]}
    assert hash_parts(parts) != hash_parts({**parts, "train": [two], "validation": [one]})


ENGLISH = train_wordpiece(["The cat saw the dog. It ran."] * 20, vocabulary=300)
MASKING = SpanMasking.of(ENGLISH)
SPECIAL = np.array(sorted(ENGLISH.all_special_ids))
TEXT = encode_documents(ENGLISH, [Document(str(n), f"The cat {n} saw the dog. It ran. " * 9) for n in range(8)])
SEGMENTS, LONG = cut_segments(TEXT, 48), cut_segments(TEXT, 96)


def drawn(ids: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed).random((1, MASKING.numbers(len(ids))))
    shown, asked = MASKING.draw(ids[None], np.array([len(ids)]), random)
    return shown[0], asked[0]


segments = st.lists(st.integers(0, len(ENGLISH) - 1), min_size=1, max_size=200).map(np.array)
seeds = st.integers(0, 2**32)


def reference(ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    shown, asked = ids.copy(), np.full_like(ids, IGNORED)
    candidates = np.isin(ids, MASKING.ordinary)
    count = int(candidates.sum())
    if count == 0:
        return shown, asked
    budget = min(count, max(1, int(MASKING.share * count + random.random())))
    lengths = np.minimum(random.geometric(MASKING.stop, size=len(ids)), MAX_SPAN)
    span = np.repeat(np.arange(len(ids)), lengths)[: len(ids)]
    in_order = np.argsort(random.permutation(span[-1] + 1)[span], kind="stable")
    chosen = in_order[candidates[in_order]][:budget]
    coins = random.random(span[-1] + 1)[span[chosen]]
    asked[chosen] = ids[chosen]
    shown[chosen[coins < 0.8]] = MASKING.mask
    replaced = chosen[(coins >= 0.8) & (coins < 0.9)]
    shown[replaced] = random.choice(MASKING.ordinary, size=len(replaced))
    return shown, asked


def statistics(ids: np.ndarray, shown: np.ndarray, asked: np.ndarray) -> np.ndarray:
    masked = asked != IGNORED
    fates = [
        masked & (shown == MASKING.mask),
        masked & (shown != MASKING.mask) & (shown != ids),
        masked & (shown == ids),
    ]
    edges = np.diff(np.pad(masked, ((0, 0), (1, 1))).astype(int), axis=1)
    (row, begin), (_, end) = np.nonzero(edges == 1), np.nonzero(edges == -1)
    runs = np.zeros((len(ids), MAX_SPAN + 1))
    np.add.at(runs, (row, np.minimum(end - begin, MAX_SPAN + 1) - 1), 1)
    both = masked[:, 1:] & masked[:, :-1]
    changes = [(both & (fate[:, 1:] != fate[:, :-1])).sum(axis=1) for fate in fates]
    ends = [ids * masked, np.where(fates[1], shown, 0)]  # which tokens are asked about, and shown at random
    return np.column_stack([masked, runs, *(each.sum(axis=1) for each in (masked, *fates, *ends)), *changes])


def test_batch_masking_equals_single_masking() -> None:
    # The normal difference of two means passes 5 standard errors, for 60 statistics, once in 29,000 seeds.
    rows, width = 4_000, 40
    random = np.random.default_rng(5)
    ids = np.tile(random.integers(0, len(ENGLISH), width), (rows, 1))
    ids[:, ::7] = SPECIAL[0]
    batch = MASKING.draw(ids, np.full(rows, width), random.random((rows, MASKING.numbers(width))))
    single = [np.stack(each) for each in zip(*(reference(row, random) for row in ids), strict=True)]
    found, expected = (statistics(ids, *each) for each in (batch, single))
    error = np.sqrt((found.var(axis=0) + expected.var(axis=0)) / rows)
    assert found.shape[1] == 60
    assert (np.abs(found.mean(axis=0) - expected.mean(axis=0)) <= 5 * error).all()


def test_masking_is_independent_of_other_rows() -> None:
    read = MaskedSegments([SEGMENTS, LONG], MASKING, ENGLISH, seed=1)
    draws = [Draw(48, 0, 5, 7), Draw(48, 3, 5, 8), Draw(48, 1, 5, 2), Draw(96, 1, 5, 3), Draw(48, 2, 6, 9)]
    for together, draw in zip(read.__getitems__(draws), draws, strict=True):
        alone = read[draw]
        assert all(torch.equal(together[name], alone[name]) for name in alone)
    fixed = FixedMasks(SEGMENTS, MASKING, ENGLISH)
    for together, index in zip(fixed.__getitems__([4, 0, 1]), (4, 0, 1), strict=True):
        assert torch.equal(together["labels"], fixed[index]["labels"])


@given(segments, seeds)
def test_targets_are_the_original_tokens(ids: np.ndarray, seed: int) -> None:
    shown, asked = drawn(ids, seed)
    masked = asked != IGNORED
    assert (asked[masked] == ids[masked]).all()
    assert (shown[~masked] == ids[~masked]).all()
    assert not np.isin(ids[masked], SPECIAL).any()
    assert np.isin(shown[masked], SPECIAL, invert=True)[shown[masked] != MASKING.mask].all()


@given(segments, seeds)
def test_the_masked_share_is_met(ids: np.ndarray, seed: int) -> None:
    _, asked = drawn(ids, seed)
    ordinary = int((~np.isin(ids, SPECIAL)).sum())
    count = int((asked != IGNORED).sum())
    if ordinary == 0:
        assert count == 0
    else:
        assert max(1, int(0.15 * ordinary)) <= count <= max(1, int(0.15 * ordinary) + 1)


def test_random_stream_can_start_anywhere() -> None:
    for count in (1, 4, 6):
        stream = Generator(Philox(SeedSequence((3, 1)))).random((40, -(-count // 4) * 4))[:, :count]
        for indices in ([0], [39], [5, 6, 7], [7, 8, 2, 3, 3, 30], list(range(40))):
            assert (draw_uniforms((3, 1), indices, count) == stream[indices]).all()
    assert not np.isin(*(draw_uniforms((3, key), [0], 64) for key in (1, 2))).any()


def test_training_examples_depend_on_seed_and_index() -> None:
    read, again, other = (MaskedSegments([SEGMENTS], MASKING, ENGLISH, seed=seed) for seed in (3, 3, 4))
    one, same = read[Draw(48, 0, 5, 1)], again[Draw(48, 0, 5, 1)]
    assert all(torch.equal(one[name], same[name]) for name in one)
    for another in (read[Draw(48, 0, 6, 1)], read[Draw(48, 0, 5, 2)], other[Draw(48, 0, 5, 1)]):
        assert not torch.equal(one["labels"], another["labels"])


def test_a_tenth_of_training_segments_are_shortened() -> None:
    read = MaskedSegments([SEGMENTS], MASKING, ENGLISH, seed=0)
    whole = len(SEGMENTS.ids([0])[0]) + 2
    examples = read.__getitems__([Draw(48, 0, 0, slot) for slot in range(5_000)])
    lengths = np.array([len(each["input_ids"]) for each in examples])
    assert (lengths < whole).mean() == pytest.approx(0.1, abs=0.02)
    assert set(lengths) == set(range(3, whole + 1))
    for each in examples[:50]:
        assert (each["input_ids"][0], each["input_ids"][-1]) == (ENGLISH.cls_token_id, ENGLISH.sep_token_id)
        assert each["labels"][0] == each["labels"][-1] == IGNORED


def test_held_out_masks_are_fixed_and_spread() -> None:
    whole, some = FixedMasks(SEGMENTS, MASKING, ENGLISH), FixedMasks(SEGMENTS, MASKING, ENGLISH, limit=5)
    assert len(whole) == len(SEGMENTS)
    assert some.numbers.tolist() == sorted(set(some.numbers.tolist()))
    assert (some.numbers[0], some.numbers[-1], len(some)) == (0, len(SEGMENTS) - 1, 5)
    for index, number in enumerate(some.numbers):
        assert torch.equal(some[index]["labels"], whole[int(number)]["labels"])
        assert some.owners[index] == whole.owners[number]
