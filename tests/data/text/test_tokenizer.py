"""The llama2.c reader compared with a slow encoder written from the format's definition."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from layerwise.data.text.tokenizer import load_tokenizer, masking_id, read_llama2c
from layerwise.errors import DataError
from tier import by_tier
from tiny_tokenizers import character_tokenizer, word_tokenizer

WORDS = ["th", "he", "the", " t", " the", "aa", "aaa", "aaaa", "ab", "ba", "bab", " a", " b", "éa", "ll"]
LETTERS = [" ", "a", "b", "e", "h", "t", "l", "é"]
PIECES = [
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
    ids = {piece: number for number, (piece, _) in enumerate(PIECES)}
    tokens: list[int] = []
    for character in " " + text if text else "":
        tokens += [ids[character]] if character in ids else [3 + byte for byte in character.encode()]
    while True:
        best_score, best_index = float("-inf"), None
        for index in range(len(tokens) - 1):
            union = ids.get(PIECES[tokens[index]][0] + PIECES[tokens[index + 1]][0])
            if union is not None and PIECES[union][1] > best_score:
                best_score, best_index = PIECES[union][1], index
        if best_index is None:
            return [1, *tokens]
        union_text = PIECES[tokens[best_index]][0] + PIECES[tokens[best_index + 1]][0]
        tokens[best_index : best_index + 2] = [ids[union_text]]


@pytest.fixture(scope="module")
def llama2c(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    file = tmp_path_factory.mktemp("tokenizer") / "tok.bin"
    file.write_bytes(packed(PIECES))
    return read_llama2c(file)


@given(text=st.text("abehtl é☃\n", max_size=30))
@settings(deadline=None, max_examples=by_tier(fast=30, nightly=500))
def test_the_fast_encoder_equals_the_slow_one(llama2c: PreTrainedTokenizerFast, text: str) -> None:
    assert llama2c(text)["input_ids"] == slow_encode(text)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
@settings(deadline=None)
def test_decoding_gives_the_text_back(llama2c: PreTrainedTokenizerFast, text: str) -> None:
    if not any(special in text for special in ("<s>", "</s>", "<unk>")):
        assert llama2c.decode(llama2c(text)["input_ids"], skip_special_tokens=True) == text


def test_offsets_point_into_the_text_as_given(llama2c: PreTrainedTokenizerFast) -> None:
    text = "the ☃ é"
    encoding = llama2c(text, add_special_tokens=False, return_offsets_mapping=True)
    pieces = [text[start:end] for start, end in encoding["offset_mapping"]]
    assert pieces[0] == "the"  # the space in front is the format's, not the text's
    assert pieces.count("☃") == 3  # a snowman is three bytes
    assert encoding["offset_mapping"][-1][1] == len(text)


def test_such_a_file_is_recognised_unless_a_saved_tokenizer_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tok512.bin").write_bytes(packed(PIECES))
    for source in (tmp_path, tmp_path / "tok512.bin"):
        assert load_tokenizer(source)("the")["input_ids"] == slow_encode("the")
    character_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "tok512.bin").write_bytes(b"")
    assert len(load_tokenizer(tmp_path)) == len(character_tokenizer())


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (packed(PIECES)[:-1], "does not fit"),
        (packed(PIECES) + b"\0\0", "cut short"),
        (packed(PIECES)[:100], "does not fit|cut short|0x00"),
        (packed(PIECES[:3] + PIECES[4:]), "pieces 3 to 258"),
        (packed([*PIECES[:-1], ("x", 0.0)])[:-1] + b"\xff", "not UTF-8"),
        (b"", "pieces 3 to 258"),
        (struct.pack("<ifi", 1, 0.0, -5), "does not fit"),
    ],
)
def test_a_malformed_binary_is_refused_at_its_byte(tmp_path: Path, content: bytes, found: str) -> None:
    (tmp_path / "tok.bin").write_bytes(content)
    with pytest.raises(DataError, match=f"not a llama2.c tokenizer: .*({found})"):
        load_tokenizer(tmp_path)


def test_no_tokenizer_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(DataError, match="--tokenizer"):
        load_tokenizer(tmp_path)


def test_a_masked_loss_needs_a_mask() -> None:
    assert masking_id(word_tokenizer([])) == 4
    with pytest.raises(DataError, match="no mask token"):
        masking_id(character_tokenizer())
