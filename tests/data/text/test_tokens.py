"""Documents as windows of tokens and passages as lines: context, and scored tokens."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.data.text.passages import EncodedPassage, Passage, encode
from layerwise.data.text.tokens import Window, windows
from layerwise.errors import DataError
from tiny_tokenizers import CharactersWithoutOffsets, character_tokenizer, word_tokenizer

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
def test_with_a_start_token_every_token_of_the_text_is_scored_once(texts: list[str], length: int) -> None:
    cut = windows(corpus(*texts), WITH_START, length)
    assert all(2 <= len(window.ids) <= length and window.ids[0] == WITH_START.bos_token_id for window in cut)
    for number, text in enumerate(texts):
        own = [window for window in cut if window.document == f"d{number}"]
        assert [window.index for window in own] == list(range(len(own)))
        assert sum((scored(window) for window in own), ()) == ids(text)


@given(texts, st.integers(2, 12))
@settings(deadline=None)
def test_without_a_start_token_all_but_each_first_token_is_scored(text: str, length: int) -> None:
    cut = windows(corpus(text), WITHOUT_START, length)
    whole = tuple(WITHOUT_START(text)["input_ids"])
    pieces = [whole[start : start + length] for start in range(0, len(whole), length)]
    assert [window.ids for window in cut] == [piece for piece in pieces if len(piece) > 1]
    assert all(scored(window) == window.ids[1:] for window in cut)


def test_a_window_knows_its_document_and_counts_what_it_scores() -> None:
    (window,) = windows(Corpus("test", (Document("d", "abc", "letters"),)), WITH_START, 9)
    assert window == Window("d", "letters", 0, (1, *ids("abc")), 1, 4)
    assert window.scored == 3


@pytest.mark.parametrize("tokenizer", [WITH_START, WITHOUT_START, CharactersWithoutOffsets()])
def test_an_answer_is_scored_from_its_first_character(tokenizer: Any) -> None:
    document = Document("sum", "12+3=15", answer_start=5)
    (window,) = windows(Corpus("sums", (document,)), tokenizer, 8)
    assert tokenizer.decode(list(scored(window))).replace(" ", "") == "15"
    assert window.scored_until == len(window.ids)


def test_a_token_that_straddles_the_border_belongs_to_the_answer() -> None:
    document = Document("d", "the cat sat", answer_start=5)  # inside "cat"
    (window,) = windows(Corpus("test", (document,)), WORDS, 8)
    assert WORDS.decode(list(scored(window))) == "cat sat"


def test_answers_are_never_cut_and_the_refusal_counts_them() -> None:
    sums = [Document(f"d{size}", "1" * size + "=1", answer_start=size + 1) for size in (2, 7, 9)]
    assert len(windows(Corpus("sums", tuple(sums)), WITH_START, 12)) == 3
    with pytest.raises(DataError, match=r"2 of 3 documents .* the longest, 'd9', needs 12.*--max-length 12"):
        windows(Corpus("sums", tuple(sums)), WITH_START, 9)


def test_masked_windows_are_wrapped_and_only_the_text_is_scored() -> None:
    text = "the cat sat " * 3
    cut = windows(corpus(text), WORDS, 6, objective="masked_token")
    assert [WORDS.decode(list(window.ids)) for window in cut] == [
        "[CLS] the cat sat the [SEP]",
        "[CLS] cat sat the cat [SEP]",
        "[CLS] sat [SEP]",
    ]
    assert " ".join(WORDS.decode(list(scored(window))) for window in cut) == text.strip()


def test_only_what_is_masked_counts_as_scored() -> None:
    texts = corpus(*["the cat sat " * 20] * 10)
    whole = windows(texts, WORDS, 62, objective="masked_token")
    assert all(window.scored == len(window.masked or ()) > 0 for window in whole)
    assert 50 < sum(window.scored for window in whole) < 150
    some = windows(texts, WORDS, 62, 40, objective="masked_token")
    assert 25 < sum(window.scored for window in some) <= 40
    assert set(some) < set(whole)
    assert windows(texts, WORDS, 62, objective="masked_token", seed=1) != whole


def test_a_limit_of_masked_tokens_is_reached_in_a_long_document() -> None:
    (long,) = corpus("the cat sat on the mat " * 4000).documents
    some = windows(Corpus("test", (long,)), WORDS, 30, 300, objective="masked_token")
    assert 280 < sum(window.scored for window in some) <= 300


@pytest.mark.parametrize("tokenizer", [WITH_START, WITHOUT_START])
def test_what_gives_no_window_is_refused(tokenizer: Any) -> None:
    assert windows(corpus("abc"), tokenizer, 16, positions=16)
    with pytest.raises(DataError, match=r"'d1' has 1 token"):
        windows(corpus("abc", "a"), tokenizer, 8)
    with pytest.raises(DataError, match="at least 2"):
        windows(corpus("abc"), tokenizer, 1)
    with pytest.raises(DataError, match="at least 3"):
        windows(corpus("the cat"), WORDS, 2, objective="masked_token")
    with pytest.raises(DataError, match="has 16 positions: use --max-length 16"):
        windows(corpus("abc"), tokenizer, 17, positions=16)
    with pytest.raises(DataError, match="answer of document 'd'"):
        windows(Corpus("test", (Document("d", "the cat  ", answer_start=7),)), WORDS, 8)


MANY = corpus(*("abcde " * (2 + number % 7) for number in range(30)))


@pytest.mark.parametrize("limit", [8, 50, 100, 400])
def test_a_limit_takes_whole_windows_spread_over_documents(limit: int) -> None:
    everything = set(windows(MANY, WITH_START, 9))
    chosen = windows(MANY, WITH_START, 9, limit, seed=3)
    assert set(chosen) <= everything
    assert limit - 8 < sum(window.scored for window in chosen) <= limit
    per_document = Counter(window.document for window in chosen)
    assert len(per_document) == min(30, len(chosen))
    order = [(int(window.document[1:]), window.index) for window in chosen]
    assert order == sorted(order)


def test_a_limit_is_drawn_from_its_seed_from_anywhere_in_a_document() -> None:
    draws = [windows(MANY, WITH_START, 9, 60, seed=seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    draws = [windows(corpus("abcde" * 8), WITH_START, 9, 8, seed=seed) for seed in range(20)]
    assert {window.index for cut in draws for window in cut} == set(range(5))
    assert windows(MANY, WITH_START, 9, 10_000) == windows(MANY, WITH_START, 9)
    with pytest.raises(DataError, match="use --tokens 8 or more"):
        windows(MANY, WITH_START, 9, 7)


def test_a_limit_reads_whole_windows_of_excerpts_of_long_texts_from_a_line_start() -> None:
    texts = ["\n".join(f"line {number} of the long text {name}" for number in range(400)) for name in "abcdefghijkl"]
    for seed in range(4):
        chosen = windows(corpus(*texts), WITH_START, 40, 12 * 39, seed=seed)
        assert [window.scored for window in chosen] == [39] * 12
        for window, text in zip(chosen, texts, strict=True):
            assert "".join(WITH_START.convert_ids_to_tokens(list(scored(window)))) in text


def test_a_masked_model_reads_what_the_tokenizer_wraps_and_scores_the_rest() -> None:
    tokenizer = word_tokenizer(["b", "c"])
    assert encode(tokenizer, [Passage("a b"), Passage("c")], "masked_token") == (
        EncodedPassage((2, 5, 6, 3), (1, 2)),
        EncodedPassage((2, 7, 3), (1,)),
    )


def test_without_special_tokens_the_first_and_the_last_are_scored_too() -> None:
    tokenizer = character_tokenizer()
    ids = tuple(tokenizer("abc", add_special_tokens=False)["input_ids"])
    assert encode(tokenizer, [Passage("abc")], "masked_token") == (EncodedPassage(ids, (0, 1, 2)),)


def test_a_causal_model_reads_from_the_start_token_where_there_is_one() -> None:
    with_start, without = character_tokenizer(), character_tokenizer(start=False)
    ids = tuple(without("abc")["input_ids"])
    assert encode(with_start, [Passage("abc")], "next_token") == (EncodedPassage((1, *ids), (1, 2, 3)),)
    assert encode(without, [Passage("abc")], "next_token") == (EncodedPassage(ids, (1, 2)),)
    with pytest.raises(DataError, match="no token to score with this tokenizer, which has no start token"):
        encode(without, [Passage("a")], "next_token")


@pytest.mark.parametrize("objective", ["masked_token", "next_token"])
def test_a_context_is_read_and_not_scored(objective: str) -> None:
    tokenizer = character_tokenizer()
    whole, part = encode(tokenizer, [Passage("ab cd"), Passage("ab cd", 3)], objective)  # type: ignore[arg-type]
    assert whole.ids == part.ids
    assert part.scored == whole.scored[3:]


def test_a_tokenizer_without_offsets_encodes_context_and_rest_apart() -> None:
    slow, fast = CharactersWithoutOffsets(), character_tokenizer()
    given = [Passage("ab cd", 3), Passage("abc")]
    for one, other in zip(encode(slow, given, "next_token"), encode(fast, given, "next_token"), strict=True):
        assert one.scored == other.scored
        assert len(one.ids) == len(other.ids)


def test_a_text_without_tokens_is_named() -> None:
    with pytest.raises(DataError, match="the text '   ' leaves no token"):
        encode(word_tokenizer([]), [Passage("   ")], "masked_token")
