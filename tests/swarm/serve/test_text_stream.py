"""Text in pieces: the same text as in one piece, no half characters, and nothing of a stop text."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast

from layerwise.swarm.decoding.text_stream import REPLACEMENT, TextStream
from swarm.serve.fake import byte_tokenizer

BYTES = byte_tokenizer()


@cache
def byte_fallback() -> PreTrainedTokenizerFast:
    words = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁Hello", "▁world", "▁the", "end", ",", "▁"]
    encoder = tokenizers.Tokenizer(
        models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=[], unk_token="<unk>", byte_fallback=True)
    )
    encoder.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=encoder, eos_token="</s>")


def pieces(tokenizer: Any, tokens: Sequence[int], prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> list[str]:
    stream = TextStream(tokenizer, prompt, stop)
    return [*map(stream.add, tokens), stream.finish()]


@given(st.text(max_size=30), st.text(max_size=10))
def test_the_pieces_are_the_text_and_hold_whole_characters(text: str, prompt: str) -> None:
    tokens, before = (BYTES(each)["input_ids"] for each in (text, prompt))
    made = pieces(BYTES, tokens, before)
    assert "".join(made) == text.rstrip(REPLACEMENT)
    if REPLACEMENT not in text:
        assert all(REPLACEMENT not in each for each in made)


@given(st.lists(st.sampled_from([*range(2, 258), *range(258, 264), *([258, 259, 263] * 40)]), max_size=30))
def test_bytes_among_words_are_as_in_one_piece(tokens: list[int]) -> None:
    tokenizer = byte_fallback()
    whole = tokenizer.decode(tokens)
    if REPLACEMENT not in whole:
        assert "".join(pieces(tokenizer, tokens)) == whole


def test_a_space_before_the_first_new_word_is_kept() -> None:
    tokenizer = byte_fallback()
    hello, world = tokenizer.convert_tokens_to_ids(["▁Hello", "▁world"])
    assert tokenizer.decode([world]) == "world"
    assert pieces(tokenizer, [world], prompt=[hello]) == [" world", ""]
    assert pieces(tokenizer, [world]) == ["world", ""]


@pytest.mark.parametrize("characters", range(1, 9))
def test_a_prompt_that_ends_with_bytes_of_several_characters(characters: int) -> None:
    tokenizer = byte_fallback()
    prompt = [2 + byte for byte in ("日本" * 4)[:characters].encode()]
    new = [2 + byte for byte in "語 ok".encode()]
    assert "".join(pieces(tokenizer, new, prompt)) == "語 ok"


@pytest.mark.parametrize(
    ("tokenizer", "before", "bytes_", "after"),
    [
        (BYTES, BYTES("a")["input_ids"], BYTES("😀")["input_ids"], BYTES("end")["input_ids"]),
        (byte_fallback(), [258], [2 + byte for byte in "😀".encode()], [261]),
    ],
)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_prompt_that_ends_within_a_character(
    tokenizer: Any, before: list[int], bytes_: list[int], after: list[int], cut: int
) -> None:
    prompt = [*before, *bytes_[:-cut]]
    assert "".join(pieces(tokenizer, after, prompt)) == "end"
    assert "".join(pieces(tokenizer, [*bytes_[-cut:], *after], prompt)) == "😀end"


@given(st.lists(st.sampled_from(range(264)), max_size=9), st.lists(st.sampled_from(range(264)), max_size=12))
def test_bytes_that_are_no_character_end_no_answer(prompt: list[int], tokens: list[int]) -> None:
    made = "".join(pieces(byte_fallback(), tokens, prompt))
    assert not made.endswith(REPLACEMENT)


def test_half_a_character_is_never_given() -> None:
    tokens = BYTES("a😀")["input_ids"][:-1]
    assert pieces(BYTES, tokens) == ["a", "", "", "", ""]


def test_special_tokens_have_no_text() -> None:
    assert pieces(BYTES, [*BYTES("hi")["input_ids"], 0]) == ["h", "i", "", ""]


@given(st.text(alphabet="abc", max_size=12), st.lists(st.text(alphabet="abc", min_size=1, max_size=3), max_size=3))
def test_the_text_ends_before_the_first_stop(text: str, stops: list[str]) -> None:
    stream = TextStream(BYTES, (), stops)
    made, ended = "", None
    for count, token in enumerate(BYTES(text)["input_ids"], 1):
        made += stream.add(token)
        assert not any(stop in made for stop in stops)
        if stream.stopped and ended is None:
            ended = count
    made += stream.finish()
    first = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
    # Of two stop texts the one that is complete first ends the text, even where the other begins before it.
    completed = min((text.find(stop) + len(stop) for stop in stops if stop in text), default=None)
    assert ended == completed
    if first is None:
        assert made == text
    else:
        expected = min(at for stop in stops if (at := text[:completed].find(stop)) >= 0)
        assert made == text[:expected]


def test_what_may_become_a_stop_is_held_back_and_given_when_it_does_not() -> None:
    made = pieces(BYTES, BYTES("one\nuse it")["input_ids"], stop=["\nuser:"])
    assert made[:4] == ["o", "n", "e", ""]
    assert made[7] == "\nuse "
    assert "".join(made) == "one\nuse it"
