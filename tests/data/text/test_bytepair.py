"""The tokenizer of a decoder from nothing: what it gives back, what it learns, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.data.text.bytepair import END, PADDING, SPECIALS, train_bytepair
from layerwise.errors import DataError

TEXTS = ("the cat saw the dog and the dog saw the cat\n", "12 dogs, 345 cats: don't!\n") * 20
BYTES = 256


@given(text=st.text(max_size=40))
def test_every_text_is_given_back_as_it_was(text: str) -> None:
    speller = train_bytepair(TEXTS, 300)
    assert speller.decode(speller(text, add_special_tokens=False)["input_ids"]) == text


def test_what_stands_together_often_becomes_one_token() -> None:
    speller = train_bytepair(TEXTS, 300)
    assert len(speller(" the", add_special_tokens=False)["input_ids"]) == 1
    assert len(speller(" zqx", add_special_tokens=False)["input_ids"]) == 4
    assert len(train_bytepair(["a b"], 300)) == BYTES + len(SPECIALS), "what occurs once teaches nothing"


def test_a_digit_is_a_token_of_its_own() -> None:
    speller = train_bytepair(["1234 1234 1234 1234"] * 9, 300)
    assert len(speller("1234", add_special_tokens=False)["input_ids"]) == 4


def test_the_specials_come_first_and_are_what_windows_look_for() -> None:
    speller = train_bytepair(TEXTS, 300)
    assert [speller.convert_tokens_to_ids(token) for token in SPECIALS] == [0, 1]
    assert (speller.bos_token, speller.eos_token, speller.pad_token) == (END, END, PADDING)


def test_the_same_texts_give_the_same_tokenizer_and_never_more_tokens_than_were_asked_for() -> None:
    one, other = (train_bytepair(iter(TEXTS), 270).get_vocab() for _ in range(2))
    assert one == other
    assert len(one) == 270


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(DataError, match="are 258 already: ask for 258 or more"):
        train_bytepair(TEXTS, 257)
    with pytest.raises(DataError, match="these texts are empty"):
        train_bytepair(["", ""], 300)
