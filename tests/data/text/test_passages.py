from __future__ import annotations

import pytest

from layerwise.data.text.passages import EncodedPassage, Passage, encode
from layerwise.errors import DataError
from tiny_tokenizers import CharactersWithoutOffsets, character_tokenizer, word_tokenizer


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
