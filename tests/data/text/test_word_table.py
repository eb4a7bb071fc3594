"""The ids of a text are those of its words, for the tokenizers of which that is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from layerwise.data.text.bytepair import train_bytepair
from layerwise.data.text.word_table import TextEncoder, counted_words, encodes_words, split_words
from layerwise.data.text.wordpiece import train_wordpiece

TEXT = ["The cat saw 12 dogs, didn't it? ab ab aB a.b"] * 20


def byte_pairs_without_prefix() -> PreTrainedTokenizerFast:
    """As GPT-2's: no space is put before a text, and special tokens are found in it."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["[MASK]"])
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, mask_token="[MASK]")


TOKENIZERS = {
    "word pieces": (train_wordpiece(TEXT, vocabulary=300), True),
    "byte pairs": (byte_pairs_without_prefix(), True),
    "byte pairs, digits first": (train_bytepair(TEXT, 280), False),
}
PIECES = ("a", "ab", "B", ".", "'s", " ", "  ", "\n", "\x1c", "\u00a0", "é", "1", "2", "[MASK]")
texts = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), min_size=1, max_size=4)


def as_the_tokenizer_does(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return ids


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokenizers_are_known_by_what_they_say(name: str) -> None:
    tokenizer, by_word = TOKENIZERS[name]
    assert encodes_words(tokenizer) is by_word


@pytest.mark.parametrize("name", TOKENIZERS)
@given(texts=texts)
def test_a_text_has_the_ids_that_its_tokenizer_gives_it(name: str, texts: list[str]) -> None:
    tokenizer, _ = TOKENIZERS[name]
    encoder = TextEncoder(tokenizer)
    for _ in range(2):  # then with every word known
        ids, lengths = encoder(texts)
        found = [ids[end - length : end].tolist() for end, length in zip(lengths.cumsum(), lengths, strict=True)]
        assert found == [as_the_tokenizer_does(tokenizer, text) for text in texts]


@given(texts)
def test_words_make_up_the_text_and_are_counted_with_their_spaces(texts: list[str]) -> None:
    assert [" ".join(split_words(text)) for text in texts] == texts
    assert sum(len(word) * count for word, count in counted_words(texts).items()) == sum(map(len, texts))
