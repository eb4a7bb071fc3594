"""Learned tokenizers, and the llama2.c reader compared with a slow encoder written from the format's definition."""

import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from layerwise.data.text.tokenizer import find_mask_id, load_tokenizer, read_llama2c
from layerwise.data.text.vocabulary import (
    END_OF_TEXT,
    FILLING,
    NEEDED,
    PAIR_SPECIALS,
    SPECIALS,
    check_tokenizer,
    choose_vocabulary_size,
    train_bytepair,
    train_wordpiece,
)
from layerwise.errors import DataError
from tier import by_tier
from tiny_tokenizers import character_tokenizer, word_tokenizer

TEXTS = ["The cat saw the dog, and the dog saw the cat in 1987."] * 30
PIECES = train_wordpiece(TEXTS, vocabulary=300)
PAIRS = train_bytepair(TEXTS, 300)


def ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return found


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_every_text_round_trips(text: str) -> None:
    assert PAIRS.decode(ids(PAIRS, text)) == text
    assert PIECES.unk_token_id not in ids(PIECES, text)
    assert PIECES.decode(ids(PIECES, text)) in (text, f" {text}")


def test_special_tokens_surround_a_text() -> None:
    assert PIECES.convert_ids_to_tokens(list(range(len(SPECIALS)))) == list(SPECIALS)
    assert [PAIRS.convert_tokens_to_ids(token) for token in PAIR_SPECIALS] == [0, 1]
    assert (PAIRS.bos_token, PAIRS.eos_token, PAIRS.pad_token) == (END_OF_TEXT, END_OF_TEXT, FILLING)
    one, two = PIECES.cls_token_id, PIECES.sep_token_id
    around = PIECES("the cat")["input_ids"]
    assert (around[0], around[-1]) == (one, two)
    assert PIECES("the", "cat")["input_ids"] == [one, *PIECES("the")["input_ids"][1:], *around[2:]]
    assert set(PIECES("the cat")) == {"input_ids", "attention_mask"}


def test_word_pieces_keep_case_and_digits() -> None:
    assert PIECES.tokenize("the") == ["Ġthe"] != PIECES.tokenize("The")
    assert PIECES.tokenize("1987") == ["Ġ", "1", "9", "8", "7"]
    assert "".join(PIECES.tokenize("thecat")) == "Ġthecat"
    assert not any(piece.startswith("##") for piece in PIECES.get_vocab())
    assert len(ids(train_bytepair(["1234 1234 1234 1234"] * 9, 300), "1234")) == 4


def test_rare_pairs_are_not_merged() -> None:
    for count, length in ((10, 1), (9, len("Ġzebra"))):
        assert len(train_wordpiece(["zebra " * count], vocabulary=300).tokenize("zebra")) == length
    assert (len(ids(PAIRS, " the")), len(ids(PAIRS, " zqx"))) == (1, 4)
    assert len(train_bytepair(["a b"], 300)) == 256 + len(PAIR_SPECIALS)


def test_vocabularies_are_reproducible(tmp_path: Path) -> None:
    assert train_wordpiece(reversed(TEXTS), vocabulary=300).get_vocab() == PIECES.get_vocab()
    one, other = (train_bytepair(iter(TEXTS), 270).get_vocab() for _ in range(2))
    assert (one, len(one)) == (other, 270)
    PIECES.save_pretrained(tmp_path)
    again, text = AutoTokenizer.from_pretrained(tmp_path), "The dog [PAR] saw [MASK]"
    assert again(text)["input_ids"] == PIECES(text)["input_ids"]
    assert set(again.all_special_ids) == set(PIECES.all_special_ids) == set(range(len(SPECIALS)))


def test_vocabulary_size_is_bounded_by_frequency() -> None:
    # 256 bytes and 7 special tokens do not count; words of two letters are one piece each.
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    words = [a + b for a in letters for b in letters]
    pieces = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *words]
    often = Counter(dict.fromkeys(words, 100))
    assert choose_vocabulary_size(pieces, often) == 2_560  # the largest multiple of 512 among 2,967
    fewer = Counter({word: 100 if number < 1_000 else 99 for number, word in enumerate(words)})
    # With 1,024 pieces all 761 learned ones are frequent, with 1,536 only 1,000 of 1,273.
    assert choose_vocabulary_size(pieces, fewer) == 1_024


def lacking(**roles: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=PIECES.backend_tokenizer, **roles)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: train_wordpiece([]), "at least one word"),
    (lambda: train_wordpiece(TEXTS, vocabulary=200), "at least 263 entries"),
    (lambda: train_bytepair(TEXTS, 257), "at least 258 entries"),
    (lambda: train_bytepair(["", ""], 300), "All texts are empty"),
    (
        lambda: check_tokenizer(lacking(**{**NEEDED, "pad_token": NEEDED["mask_token"]}), "mine"),
        "different tokens for pad_token and mask_token",
    ),
    *(
        (
            lambda role=role: check_tokenizer(lacking(**{k: v for k, v in NEEDED.items() if k != role}), "mine"),  # type: ignore[misc]
            rf"requires a tokenizer with {role} \(usually \{text}\), which mine lacks",
        )
        for role, text in NEEDED.items()
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_invalid_vocabularies_are_rejected(call: Callable[[], object], message: str) -> None:
    check_tokenizer(PIECES, "learned")
    with pytest.raises(DataError, match=message):
        call()


WORDS = ["th", "he", "the", " t", " the", "aa", "aaa", "aaaa", "ab", "ba", "bab", " a", " b", "éa", "ll"]
LETTERS = [" ", "a", "b", "e", "h", "t", "l", "é"]
SCORED_PIECES = [
    ("<unk>", 0.0),
    ("\n<s>\n", 0.0),
    ("\n</s>\n", 0.0),
    *((f"<0x{value:02X}>", 0.0) for value in range(256)),
    *((word, -float(rank)) for rank, word in enumerate(WORDS)),
    *((letter, -100.0 - rank) for rank, letter in enumerate(LETTERS)),
]


def packed(pieces: list[tuple[str, float]]) -> bytes:
    content = struct.pack("<i", max(len(text.encode()) for text, _ in pieces))
    for text, score in pieces:
        content += struct.pack("<fi", score, len(text.encode())) + text.encode()
    return content


def slow_encode(text: str) -> list[int]:
    """Merge the pair of characters (or bytes) whose union scores best, leftmost first, until none is left."""
    ids = {piece: number for number, (piece, _) in enumerate(SCORED_PIECES)}
    tokens: list[int] = []
    for character in " " + text if text else "":
        tokens += [ids[character]] if character in ids else [3 + byte for byte in character.encode()]
    while True:
        best_score, best_index = float("-inf"), None
        for index in range(len(tokens) - 1):
            union = ids.get(SCORED_PIECES[tokens[index]][0] + SCORED_PIECES[tokens[index + 1]][0])
            if union is not None and SCORED_PIECES[union][1] > best_score:
                best_score, best_index = SCORED_PIECES[union][1], index
        if best_index is None:
            return [1, *tokens]
        union_text = SCORED_PIECES[tokens[best_index]][0] + SCORED_PIECES[tokens[best_index + 1]][0]
        tokens[best_index : best_index + 2] = [ids[union_text]]


@pytest.fixture(scope="module")
def llama2c(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    file = tmp_path_factory.mktemp("tokenizer") / "tok.bin"
    file.write_bytes(packed(SCORED_PIECES))
    return read_llama2c(file)


@given(text=st.text("abehtl é☃\n", max_size=30))
@settings(deadline=None, max_examples=by_tier(fast=30, nightly=500))
def test_the_fast_encoder_equals_the_reference(llama2c: PreTrainedTokenizerFast, text: str) -> None:
    assert llama2c(text)["input_ids"] == slow_encode(text)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
@settings(deadline=None)
def test_decoding_inverts_encoding(llama2c: PreTrainedTokenizerFast, text: str) -> None:
    if not any(special in text for special in ("<s>", "</s>", "<unk>")):
        assert llama2c.decode(llama2c(text)["input_ids"], skip_special_tokens=True) == text


def test_offsets_point_into_the_text_as_given(llama2c: PreTrainedTokenizerFast) -> None:
    text = "the ☃ é"
    encoding = llama2c(text, add_special_tokens=False, return_offsets_mapping=True)
    pieces = [text[start:end] for start, end in encoding["offset_mapping"]]
    assert pieces[0] == "the"  # the space in front is the format's, not the text's
    assert pieces.count("☃") == 3  # a snowman is three bytes
    assert encoding["offset_mapping"][-1][1] == len(text)


def test_llama2c_tokenizer_files_are_recognized(tmp_path: Path) -> None:
    (tmp_path / "tok512.bin").write_bytes(packed(SCORED_PIECES))
    for source in (tmp_path, tmp_path / "tok512.bin"):
        assert load_tokenizer(source)("the")["input_ids"] == slow_encode("the")
    character_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "tok512.bin").write_bytes(b"")
    assert len(load_tokenizer(tmp_path)) == len(character_tokenizer())


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (packed(SCORED_PIECES)[:-1], "does not fit"),
        (packed(SCORED_PIECES) + b"\0\0", "truncated"),
        (packed(SCORED_PIECES)[:100], "does not fit|truncated|0x00"),
        (packed(SCORED_PIECES[:3] + SCORED_PIECES[4:]), "pieces 3 to 258"),
        (packed([*SCORED_PIECES[:-1], ("x", 0.0)])[:-1] + b"\xff", "not UTF-8"),
        (b"", "pieces 3 to 258"),
        (struct.pack("<ifi", 1, 0.0, -5), "does not fit"),
    ],
)
def test_a_malformed_binary_is_rejected_at_its_byte(tmp_path: Path, content: bytes, found: str) -> None:
    (tmp_path / "tok.bin").write_bytes(content)
    with pytest.raises(DataError, match=f"not a llama2.c tokenizer: .*({found})"):
        load_tokenizer(tmp_path)


def test_missing_tokenizers_and_mask_tokens_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(DataError, match="--tokenizer"):
        load_tokenizer(tmp_path)

    assert find_mask_id(word_tokenizer([])) == 4
    with pytest.raises(DataError, match="requires a tokenizer with a mask token"):
        find_mask_id(character_tokenizer())
