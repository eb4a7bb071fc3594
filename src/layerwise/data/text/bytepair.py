"""The tokenizer of a decoder that is trained from nothing: byte pairs, learned from the text that it will read.

A text is cut as byte-level tokenizers cut it, every digit a piece of its own, and neighbours that stand together often
become one token. All 256 bytes are tokens, so every text can be spelt and is given back as it was. `<|endoftext|>`
(token 0) stands before each window and ends a document; `<|pad|>` (token 1) fills up, and is never mistaken for an end.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from layerwise.errors import DataError

END, PADDING = SPECIALS = ("<|endoftext|>", "<|pad|>")
"""The tokens that stand for no text, by their ids from 0 on."""

_BYTES = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))
_OFTEN = 2
"""How often neighbours must stand together to become one token: what occurs once teaches nothing."""


def train_bytepair(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocabulary` tokens, learned from `texts`; the same texts give the same one.

    Raises `DataError` for texts without a character, and for a vocabulary that cannot hold the bytes.
    """
    least = len(SPECIALS) + len(_BYTES)
    if vocabulary < least:
        raise DataError(
            f"a vocabulary of {vocabulary} was asked for, but the {len(SPECIALS)} special tokens and the "
            f"{len(_BYTES)} bytes are {least} already: ask for {least} or more"
        )
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    texts = tuple(texts)
    if not any(texts):
        raise DataError("a vocabulary is learned from a text, and these texts are empty: give at least one sentence")
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=_OFTEN, show_progress=False, special_tokens=list(SPECIALS),
        initial_alphabet=list(_BYTES),
    )  # fmt: skip
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=END, eos_token=END, pad_token=PADDING,
        model_input_names=["input_ids", "attention_mask"], clean_up_tokenization_spaces=False,
    )  # fmt: skip
