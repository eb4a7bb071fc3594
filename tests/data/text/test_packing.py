"""Documents become token windows, and packed texts are computed independently."""

from collections import Counter
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM, PreTrainedModel

from conftest import tiny_llama
from layerwise.data.batches import IGNORED
from layerwise.data.splits import SPLITS, Splits
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.division import Division
from layerwise.data.text.documents import Document
from layerwise.data.text.language_modeling import (
    FILL,
    PackedWindows,
    TokenWindows,
    build_text_splits,
    keep_full_windows,
    pack_windows,
    select_evenly,
)
from layerwise.data.text.tokens import Window, cut_windows
from layerwise.errors import DataError
from layerwise.measure.language.pseudo_likelihood import EncodedPassage, Passage, encode_passages
from layerwise.stack.max_length import keeps_texts_apart
from rounding import unit
from tiny_tokenizers import CharactersWithoutOffsets, character_tokenizer, word_tokenizer

START = 1


def window(number: int, length: int, answer: int = 1) -> Window:
    draw = Random(number)
    ids = (START, *(draw.randrange(3, 97) for _ in range(length - 1)))
    return Window(f"d{number}", "text", 0, ids, answer, length)


def tiny_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=97,
        n_positions=128,
        n_embd=32,
        n_layer=3,
        n_head=4,
        initializer_range=0.2,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
    )
    return GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
def test_packed_losses_equal_single_losses(make: type[PreTrainedModel]) -> None:
    model = make()
    model.config.use_cache = False  # as the Trainer sets it
    texts = [window(number, length, answer) for number, (length, answer) in enumerate([(20, 1), (7, 4), (11, 1)])]
    rows = PackedWindows([texts, [window(9, 30)]])
    splits = Splits("texts", "", rows, rows, rows, pad_id=2)
    batch = splits.collate([rows[0], rows[1]])
    assert set(batch) == {"input_ids", "labels", "position_ids"}
    with torch.inference_mode():
        logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits
        losses = functional.cross_entropy(
            logits[0, :-1], batch["labels"][0, 1:], reduction="none", ignore_index=IGNORED
        )
        start = 0
        for text in texts:
            ids = torch.tensor(text.ids)
            alone = functional.cross_entropy(model(input_ids=ids[None]).logits[0, :-1], ids[1:], reduction="none")
            alone[: text.scored_from - 1] = 0.0
            found = losses[start : start + len(ids) - 1]
            # Sums over at most 64 terms in a few dozen operations, in another order.
            torch.testing.assert_close(found, alone, rtol=0, atol=4_096 * unit(torch.float32))
            start += len(ids)
            if start < len(losses):
                assert losses[start - 1] == 0  # the first token of a text is never predicted
        whole = model(**batch).loss
    scored = batch["labels"][:, 1:] != IGNORED
    every = functional.cross_entropy(logits[:, :-1][scored], batch["labels"][:, 1:][scored])
    torch.testing.assert_close(whole, every)


def test_packing_fills_rows_and_spares_answers() -> None:
    draw = Random(0)
    short = [window(number, draw.randint(4, 100)) for number in range(1_000)]
    rows = pack_windows(short, 128, seed=0, start=START)
    assert sum(len(each.ids) for each in rows.windows) >= FILL * 128 * len(rows)
    assert sorted(each.document for each in rows.windows) == sorted(each.document for each in short)  # none was cut
    assert (
        pack_windows(short, 128, seed=0, start=START).rows
        == rows.rows
        != pack_windows(short, 128, seed=1, start=START).rows
    )
    rows = pack_windows([window(number, 80) for number in range(200)], 128, start=START)
    assert sum(len(each.ids) for each in rows.windows) >= FILL * 128 * len(rows)
    assert all(each.ids[0] == START for each in rows.windows)
    answers = pack_windows([window(number, 80, answer=60) for number in range(40)], 128, start=START)
    assert answers.rows == tuple((each,) for each in answers.windows)


@given(st.lists(st.integers(2, 40), min_size=1, max_size=60), st.integers(0, 3), st.booleans())
def test_every_token_is_in_one_row(lengths: list[int], seed: int, begins: bool) -> None:
    texts = [window(number, length) for number, length in enumerate(lengths)]
    rows = pack_windows(texts, 40, seed, START if begins else None)
    assert all(sum(len(each.ids) for each in row) <= 40 for row in rows.rows)
    skipped = 1 if begins else 0  # every piece begins with a separate token
    for text in texts:
        pieces = [each.ids[skipped:] for each in rows.windows if each.document == text.document]
        assert sorted(token for piece in pieces for token in piece) == sorted(text.ids[skipped:])
        assert max(map(len, pieces)) == len(text.ids) - skipped or len(pieces) > 1


def test_model_types_are_detected() -> None:
    assert keeps_texts_apart(tiny_llama())
    assert keeps_texts_apart(tiny_gpt2())
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=97, hidden_size=16, num_hidden_layers=2, state_size=4, use_mambapy=False)
    assert not keeps_texts_apart(MambaForCausalLM(config).eval())


TOKENIZER = character_tokenizer()


def documents(count: int, name: str = "text") -> tuple[Document, ...]:
    return tuple(Document(f"{name}/{n}", f"{name} number {n}") for n in range(count))


def splits(given: tuple[Document, ...], length: int = 9, **options: Any) -> Splits:
    return build_text_splits(TOKENIZER, Division("notes", dict.fromkeys(SPLITS, given)), length=length, **options)


def train(count: int, length: int) -> TokenWindows:
    found = splits(documents(count), length).train
    assert isinstance(found, TokenWindows)
    return found


def test_documents_keep_their_split() -> None:
    parts = {split: documents(4, split) for split in SPLITS}
    found = build_text_splits(TOKENIZER, Division("mine", parts), length=8)
    assert (found.name, found.pad_id) == ("mine", TOKENIZER.pad_token_id)
    for split in SPLITS:
        assert {each.document for each in getattr(found, split).windows} == {each.id for each in parts[split]}
    other = {**parts, "train": parts["test"], "test": parts["train"]}
    swapped = build_text_splits(TOKENIZER, Division("mine", other), length=8)
    assert found.digest != swapped.digest


def test_labels_are_the_scored_ids() -> None:
    found = splits(tuple(Document(f"{number}", f"2+{number}=9\n", "sums", 4) for number in range(10)), 64)
    example = found.test[0]
    ids, labels = example["input_ids"].tolist(), example["labels"].tolist()
    assert ids[0] == TOKENIZER.bos_token_id
    assert labels == [-100] * 5 + ids[5:]
    assert TOKENIZER.decode(ids[5:]) == "9\n"


def test_masked_models_are_rejected() -> None:
    with pytest.raises(DataError, match=r"\.\.\.ForCausalLM"):
        splits(documents(3), objective="masked_token")


@given(st.integers(2, 9), st.integers(1, 12))
def test_full_windows_have_one_length(length: int, limit: int) -> None:
    found = train(30, length)
    kept = keep_full_windows(found, length)
    assert {len(window.ids) for window in kept.windows} == {length}
    left_out = Counter(window.document for window in found.windows if window not in kept.windows)
    assert max(left_out.values(), default=0) <= 1, "of a document one window at most, the last"
    positions = [kept.windows.index(window) for window in select_evenly(kept, limit).windows]
    count = min(limit, len(kept))
    assert positions == [number * len(kept) // count for number in range(count)]


def test_too_short_documents_suggest_a_length() -> None:
    found = train(9, 64)
    longest = max(len(window.ids) for window in found.windows)
    with pytest.raises(DataError, match=f"training document must have 64 tokens.*Pass --max-length {longest} or less"):
        keep_full_windows(found, 64)
    assert len(keep_full_windows(found, longest))


WITH_START = character_tokenizer()
WITHOUT_START = character_tokenizer(start=False)
WORDS = word_tokenizer(["the", "cat", "sat"])

texts = st.text("abcdef \n", min_size=2, max_size=40)


def corpus(*texts: str) -> Corpus:
    return Corpus("test", tuple(Document(f"d{number}", text) for number, text in enumerate(texts)))


def scored(window: Window) -> tuple[int, ...]:
    return window.ids[window.scored_from : window.scored_until]


def ids(text: str) -> tuple[int, ...]:
    return tuple(WITH_START(text, add_special_tokens=False)["input_ids"])


@given(st.lists(texts, min_size=1, max_size=4), st.integers(2, 12))
@settings(deadline=None)
def test_start_token_lets_every_token_be_scored(texts: list[str], length: int) -> None:
    cut = cut_windows(corpus(*texts), WITH_START, length)
    assert all(2 <= len(window.ids) <= length and window.ids[0] == WITH_START.bos_token_id for window in cut)
    for number, text in enumerate(texts):
        own = [window for window in cut if window.document == f"d{number}"]
        assert [window.index for window in own] == list(range(len(own)))
        assert sum((scored(window) for window in own), ()) == ids(text)


@given(texts, st.integers(2, 12))
@settings(deadline=None)
def test_without_start_token_first_tokens_are_not_scored(text: str, length: int) -> None:
    cut = cut_windows(corpus(text), WITHOUT_START, length)
    whole = tuple(WITHOUT_START(text)["input_ids"])
    pieces = [whole[start : start + length] for start in range(0, len(whole), length)]
    assert [window.ids for window in cut] == [piece for piece in pieces if len(piece) > 1]
    assert all(scored(window) == window.ids[1:] for window in cut)


@pytest.mark.parametrize("tokenizer", [WITH_START, WITHOUT_START, CharactersWithoutOffsets()])
def test_answers_are_scored_from_their_first_character(tokenizer: Any) -> None:
    document = Document("sum", "12+3=15", answer_start=5)
    (window,) = cut_windows(Corpus("sums", (document,)), tokenizer, 8)
    assert tokenizer.decode(list(scored(window))).replace(" ", "") == "15"
    assert window.scored_until == len(window.ids)


def test_a_boundary_token_belongs_to_the_answer() -> None:
    document = Document("d", "the cat sat", answer_start=5)  # inside "cat"
    (window,) = cut_windows(Corpus("test", (document,)), WORDS, 8)
    assert WORDS.decode(list(scored(window))) == "cat sat"


def test_answers_are_never_truncated() -> None:
    sums = [Document(f"d{size}", "1" * size + "=1", answer_start=size + 1) for size in (2, 7, 9)]
    assert len(cut_windows(Corpus("sums", tuple(sums)), WITH_START, 12)) == 3
    with pytest.raises(DataError, match=r"2 of 3 documents .* \(longest: 'd9' with 12\).*--max-length 12"):
        cut_windows(Corpus("sums", tuple(sums)), WITH_START, 9)


def test_masked_windows_score_only_the_text() -> None:
    text = "the cat sat " * 3
    cut = cut_windows(corpus(text), WORDS, 6, objective="masked_token")
    assert [WORDS.decode(list(window.ids)) for window in cut] == [
        "[CLS] the cat sat the [SEP]",
        "[CLS] cat sat the cat [SEP]",
        "[CLS] sat [SEP]",
    ]
    assert " ".join(WORDS.decode(list(scored(window))) for window in cut) == text.strip()


def test_only_masked_tokens_are_scored() -> None:
    texts = corpus(*["the cat sat " * 20] * 10)
    whole = cut_windows(texts, WORDS, 62, objective="masked_token")
    assert all(window.scored == len(window.masked or ()) > 0 for window in whole)
    assert 50 < sum(window.scored for window in whole) < 150
    some = cut_windows(texts, WORDS, 62, 40, objective="masked_token")
    assert 25 < sum(window.scored for window in some) <= 40
    assert set(some) < set(whole)
    assert cut_windows(texts, WORDS, 62, objective="masked_token", seed=1) != whole


def test_a_masked_token_limit_is_reached_in_a_long_document() -> None:
    (long,) = corpus("the cat sat on the mat " * 4000).documents
    some = cut_windows(Corpus("test", (long,)), WORDS, 30, 300, objective="masked_token")
    assert 280 < sum(window.scored for window in some) <= 300


@pytest.mark.parametrize("tokenizer", [WITH_START, WITHOUT_START])
def test_corpora_without_windows_are_rejected(tokenizer: Any) -> None:
    assert cut_windows(corpus("abc"), tokenizer, 16, positions=16)
    with pytest.raises(DataError, match="'d1' must have at least 2 tokens to be scored, got 1"):
        cut_windows(corpus("abc", "a"), tokenizer, 8)
    with pytest.raises(DataError, match="at least 2"):
        cut_windows(corpus("abc"), tokenizer, 1)
    with pytest.raises(DataError, match="at least 3"):
        cut_windows(corpus("the cat"), WORDS, 2, objective="masked_token")
    with pytest.raises(DataError, match="--max-length must be at most the 16 positions"):
        cut_windows(corpus("abc"), tokenizer, 17, positions=16)
    with pytest.raises(DataError, match="answer of document 'd'"):
        cut_windows(Corpus("test", (Document("d", "the cat  ", answer_start=7),)), WORDS, 8)


MANY = corpus(*("abcde " * (2 + number % 7) for number in range(30)))


@pytest.mark.parametrize("limit", [8, 50, 100, 400])
def test_a_limit_spreads_full_windows_over_documents(limit: int) -> None:
    everything = set(cut_windows(MANY, WITH_START, 9))
    chosen = cut_windows(MANY, WITH_START, 9, limit, seed=3)
    assert set(chosen) <= everything
    assert limit - 8 < sum(window.scored for window in chosen) <= limit
    per_document = Counter(window.document for window in chosen)
    assert len(per_document) == min(30, len(chosen))
    order = [(int(window.document[1:]), window.index) for window in chosen]
    assert order == sorted(order)


def test_a_limit_samples_windows_by_seed() -> None:
    draws = [cut_windows(MANY, WITH_START, 9, 60, seed=seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    draws = [cut_windows(corpus("abcde" * 8), WITH_START, 9, 8, seed=seed) for seed in range(20)]
    assert {window.index for cut in draws for window in cut} == set(range(5))
    assert cut_windows(MANY, WITH_START, 9, 10_000) == cut_windows(MANY, WITH_START, 9)
    with pytest.raises(DataError, match="--tokens must be at least 8"):
        cut_windows(MANY, WITH_START, 9, 7)


def test_a_limit_reads_excerpts_from_line_starts() -> None:
    texts = ["\n".join(f"line {number} of the long text {name}" for number in range(400)) for name in "abcdefghijkl"]
    for seed in range(4):
        chosen = cut_windows(corpus(*texts), WITH_START, 40, 12 * 39, seed=seed)
        assert [window.scored for window in chosen] == [39] * 12
        for window, text in zip(chosen, texts, strict=True):
            assert "".join(WITH_START.convert_ids_to_tokens(list(scored(window)))) in text


def test_passages_are_scored_but_for_their_special_tokens() -> None:
    tokenizer = word_tokenizer(["b", "c"])
    assert encode_passages(tokenizer, [Passage("a b"), Passage("c")], "masked_token") == (
        EncodedPassage((2, 5, 6, 3), (1, 2)),
        EncodedPassage((2, 7, 3), (1,)),
    )

    tokenizer = character_tokenizer()
    ids = tuple(tokenizer("abc", add_special_tokens=False)["input_ids"])
    assert encode_passages(tokenizer, [Passage("abc")], "masked_token") == (EncodedPassage(ids, (0, 1, 2)),)

    with_start, without = character_tokenizer(), character_tokenizer(start=False)
    ids = tuple(without("abc")["input_ids"])
    assert encode_passages(with_start, [Passage("abc")], "next_token") == (EncodedPassage((1, *ids), (1, 2, 3)),)
    assert encode_passages(without, [Passage("abc")], "next_token") == (EncodedPassage(ids, (1, 2)),)
    with pytest.raises(DataError, match=r"at least one token to score, got 'a' \(the tokenizer has no start token"):
        encode_passages(without, [Passage("a")], "next_token")

    with pytest.raises(DataError, match="at least one token to score, got '   '"):
        encode_passages(word_tokenizer([]), [Passage("   ")], "masked_token")


@pytest.mark.parametrize("objective", ["masked_token", "next_token"])
def test_context_tokens_are_not_scored(objective: str) -> None:
    tokenizer = character_tokenizer()
    whole, part = encode_passages(tokenizer, [Passage("ab cd"), Passage("ab cd", 3)], objective)  # type: ignore[arg-type]
    assert whole.ids == part.ids
    assert part.scored == whole.scored[3:]


def test_tokenizers_without_offsets_encode_parts_separately() -> None:
    slow, fast = CharactersWithoutOffsets(), character_tokenizer()
    given = [Passage("ab cd", 3), Passage("abc")]
    for one, other in zip(
        encode_passages(slow, given, "next_token"), encode_passages(fast, given, "next_token"), strict=True
    ):
        assert one.scored == other.scored
        assert len(one.ids) == len(other.ids)
