"""The learned tokenizer: what it cuts, what it keeps apart, how large it becomes, and which tokenizers are refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from layerwise.data.text.wordpiece import NEEDED, SPECIALS, check_tokenizer, suited_vocabulary, train_wordpiece
from layerwise.errors import DataError

TEXTS = ["The cat saw the dog, and the dog saw the cat in 1987."] * 30
TOKENIZER = train_wordpiece(TEXTS, vocabulary=300)


def pieces(text: str) -> list[str]:
    found: list[str] = TOKENIZER.tokenize(text)
    return found


def test_special_tokens_come_first_and_stand_around_a_text() -> None:
    assert TOKENIZER.convert_ids_to_tokens(list(range(len(SPECIALS)))) == list(SPECIALS)
    one, two = TOKENIZER.cls_token_id, TOKENIZER.sep_token_id
    ids = TOKENIZER("the cat")["input_ids"]
    assert (ids[0], ids[-1]) == (one, two)
    assert TOKENIZER("the", "cat")["input_ids"] == [one, *TOKENIZER("the")["input_ids"][1:], *ids[2:]]
    assert set(TOKENIZER("the cat")) == {"input_ids", "attention_mask"}


def test_case_and_digits_are_kept_apart() -> None:
    assert pieces("the") == ["Ġthe"]
    assert pieces("The") != pieces("the")
    assert pieces("1987") == ["Ġ", "1", "9", "8", "7"]


def test_a_piece_inside_a_word_bears_no_mark() -> None:
    assert pieces("thecat")[0] == "Ġthe"
    assert "".join(pieces("thecat")) == "Ġthecat"
    assert not any(piece.startswith("##") for piece in TOKENIZER.get_vocab())


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_every_text_comes_back(text: str) -> None:
    ids = TOKENIZER(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert TOKENIZER.unk_token_id not in ids
    assert TOKENIZER.decode(ids) in (text, f" {text}")


def test_rare_neighbours_make_no_piece() -> None:
    often, rare = train_wordpiece(["zebra " * 10], vocabulary=300), train_wordpiece(["zebra " * 9], vocabulary=300)
    assert len(often.tokenize("zebra")) == 1
    assert len(rare.tokenize("zebra")) == len("Ġzebra")


def test_the_same_texts_give_the_same_tokenizer(tmp_path: Path) -> None:
    assert train_wordpiece(reversed(TEXTS), vocabulary=300).get_vocab() == TOKENIZER.get_vocab()
    TOKENIZER.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "The dog [PAR] saw [MASK]"
    assert again(text)["input_ids"] == TOKENIZER(text)["input_ids"]
    assert set(again.all_special_ids) == set(TOKENIZER.all_special_ids) == set(range(len(SPECIALS)))


def test_a_text_can_bear_as_many_pieces_as_occur_a_hundred_times() -> None:
    # 256 bytes and 7 specials do not count; words of two letters are one piece each, and spelt with it alone.
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    words = [a + b for a in letters for b in letters]
    pieces = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *words]
    often = Counter(dict.fromkeys(words, 100))
    assert suited_vocabulary(pieces, often) == 2_560  # the largest multiple of 512 among 2,967
    fewer = Counter({word: 100 if number < 1_000 else 99 for number, word in enumerate(words)})
    # With 1,024 pieces all 761 learned ones occur often, with 1,536 only 1,000 of 1,273.
    assert suited_vocabulary(pieces, fewer) == 1_024


@pytest.mark.parametrize("texts", [[], [""]])
def test_texts_without_a_word_are_refused(texts: list[str]) -> None:
    with pytest.raises(DataError, match="have none"):
        train_wordpiece(texts)


def test_a_vocabulary_smaller_than_the_bytes_is_refused() -> None:
    with pytest.raises(DataError, match="263 already"):
        train_wordpiece(TEXTS, vocabulary=200)


@pytest.mark.parametrize("role", NEEDED)
def test_a_tokenizer_without_a_token_is_refused_by_name(role: str) -> None:
    given = {name: text for name, text in NEEDED.items() if name != role}
    lacking = PreTrainedTokenizerFast(tokenizer_object=TOKENIZER.backend_tokenizer, **given)
    with pytest.raises(DataError, match=rf"the tokenizer mine has no {role} \(usually \{NEEDED[role]}\)"):
        check_tokenizer(lacking, "mine")


def test_one_token_for_two_purposes_is_refused() -> None:
    double = PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZER.backend_tokenizer, **{**NEEDED, "pad_token": NEEDED["mask_token"]}
    )
    with pytest.raises(DataError, match="one token as pad_token and mask_token"):
        check_tokenizer(double, "mine")
    check_tokenizer(TOKENIZER, "learned")
