"""Tokenizers that are small enough to read, made without a download: one per tested behavior."""

from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

ALPHABET = [chr(code) for code in range(32, 127)] + ["\n"]


def character_tokenizer(start: bool = True) -> PreTrainedTokenizerFast:
    names = ["<unk>", "<s>", "</s>", *ALPHABET]
    encoder = tokenizers.Tokenizer(
        models.BPE(vocab={name: number for number, name in enumerate(names)}, merges=[], unk_token="<unk>")
    )
    encoder.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=encoder,
        unk_token="<unk>",
        eos_token="</s>",
        pad_token="</s>",
        **({"bos_token": "<s>"} if start else {}),
    )


def word_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", *words]
    encoder = tokenizers.Tokenizer(
        models.WordLevel(vocab={name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    )
    encoder.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    encoder.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=encoder,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


class CharactersWithoutOffsets(PreTrainedTokenizer):
    def __init__(self, **settings: Any) -> None:
        self._ids = {name: number for number, name in enumerate(["<s>", *ALPHABET])}
        super().__init__(bos_token="<s>", **settings)

    @property
    def vocab_size(self) -> int:
        return len(self._ids)

    def get_vocab(self) -> dict[str, int]:
        return dict(self._ids)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self._ids[token]

    def _convert_id_to_token(self, index: int) -> str:
        return next(name for name, number in self._ids.items() if number == index)
