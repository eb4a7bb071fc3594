"""Tokenizers that are learned from the text of a training: word pieces for masked models, byte pairs for decoders.

Word pieces: a space belongs to the word behind it, and each word is spelt greedily with the longest pieces. The
vocabulary is the largest in which 95 % of the learned pieces occur about 100 times. Byte pairs: `<|endoftext|>` (token
0) begins each window and ends a document; `<|pad|>` (token 1) fills up. All 256 bytes are pieces of both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from layerwise.errors import DataError

UNKNOWN, START, END, PADDING, MASK, PARAGRAPH, TAB = SPECIALS = (
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[PAD]",
    "[MASK]",
    "[PAR]",
    "[TAB]",
)
"""The tokens that stand for no text, by their ids from 0 on. `[PAR]` ends a paragraph, `[TAB]` is a tab."""

END_OF_TEXT, FILLING = PAIR_SPECIALS = ("<|endoftext|>", "<|pad|>")

NEEDED: Mapping[str, str] = {"cls_token": START, "sep_token": END, "pad_token": PADDING, "mask_token": MASK}
"""What pretraining needs of a tokenizer, by transformers' name for it, and how the token is usually written."""

LARGEST = 16_384
"""The largest vocabulary that is chosen unasked: the one used for 100 million words."""

_STEP = 512
_OFTEN = 100
_SHARE = 0.95
_TWICE, _TEN_TIMES = 2, 10
"""How often neighbours must stand together to become a byte pair, and a word piece."""
_BYTES = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))
_SMALLEST = 2 * _STEP
_BEFORE_SPACES = re.compile(r"(?<=[!-~])(?= [!-~])")


def train_wordpiece(texts: Iterable[str], *, vocabulary: int | None = None) -> PreTrainedTokenizerFast:
    """Train a tokenizer on `texts`, deterministically.

    Pieces join neighbors that occur together at least ten times. `vocabulary` counts all pieces, `None` means
    `suited_vocabulary`. A sentence becomes `[CLS] pieces [SEP]`, a pair `[CLS] first [SEP] second [SEP]`. Raises
    `DataError` for texts without a word, and for a vocabulary below the specials and bytes.
    """
    words = _words(texts)
    if not words:
        raise DataError("a vocabulary is learned from words, and these texts have none: give at least one sentence")
    _check_room(vocabulary, SPECIALS, ", or leave the choice to the text")
    pieces = _learned(words, vocabulary or LARGEST)
    size = vocabulary or suited_vocabulary(pieces, words)
    return _fast(pieces[:size])


def train_bytepair(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocabulary` tokens, learned from `texts`; the same texts give the same one.

    Raises `DataError` for texts without a character, and for a vocabulary that cannot hold the bytes.
    """
    _check_room(vocabulary, PAIR_SPECIALS)
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    texts = tuple(texts)
    if not any(texts):
        raise DataError("a vocabulary is learned from a text, and these texts are empty: give at least one sentence")
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=_TWICE,
        show_progress=False,
        special_tokens=list(PAIR_SPECIALS),
        initial_alphabet=list(_BYTES),
    )
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=FILLING,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def suited_vocabulary(pieces: list[str], words: Mapping[str, int]) -> int:
    """Return the largest multiple of 512 (from 1,024) with which 95 % of learned pieces occur 100 times in `words`.

    `pieces` are in the order learned, `words` counted; bytes and special tokens do not count.
    """
    sizes = list(range(_SMALLEST, len(pieces) + 1, _STEP))
    low, high = 0, len(sizes)
    while high - low > 1:
        middle = (low + high) // 2
        enough = _occurrences_at_share(pieces[: sizes[middle]], words) >= _OFTEN
        low, high = (middle, high) if enough else (low, middle)
    return sizes[low] if sizes else len(pieces)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    missing = [f"{role} (usually {text})" for role, text in NEEDED.items() if getattr(tokenizer, role, None) is None]
    if missing:
        raise DataError(
            f"the tokenizer {name} has no {', no '.join(missing)}: masked words cannot be learned with it. Add, as "
            'in tokenizer.add_special_tokens({"mask_token": "[MASK]"}), and save it again; name another with '
            "--tokenizer; or leave --tokenizer out, and one is learned from the text"
        )
    ids = {role: getattr(tokenizer, f"{role}_id") for role in NEEDED}
    same = [role for role, number in ids.items() if list(ids.values()).count(number) > 1]
    if same:
        raise DataError(
            f"the tokenizer {name} uses one token as {' and '.join(same)}: what is padding and what is masked could "
            "not be distinguished, so give each a token of its own"
        )


def _check_room(vocabulary: int | None, specials: Sequence[str], otherwise: str = "") -> None:
    least = len(specials) + len(_BYTES)
    if vocabulary is not None and vocabulary < least:
        raise DataError(
            f"a vocabulary of {vocabulary} was asked for, but the {len(specials)} special tokens and the "
            f"{len(_BYTES)} bytes are {least} already: ask for {least} or more{otherwise}"
        )


def _words(texts: Iterable[str]) -> Counter[str]:
    cut, counts = _cutter(), Counter[str]()
    # Pieces that begin with a space are cut once each: no word reaches over a space between visible characters.
    for piece, often in Counter(piece for text in texts for piece in _BEFORE_SPACES.split(text)).items():
        for word, _ in cut.pre_tokenize_str(piece):
            counts[word] += often
    return counts


def _cutter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.Digits(individual_digits=True)]
    )


def _learned(words: Mapping[str, int], size: int) -> list[str]:
    learner = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    # The words are cut already. A repeated word must count as often as it occurs, so each is written that often.
    learner.pre_tokenizer = pre_tokenizers.CharDelimiterSplit("\n")
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=_TEN_TIMES,
        continuing_subword_prefix="",
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=list(_BYTES),
    )
    lines = ("\n".join([word] * count) for word, count in sorted(words.items()))
    learner.train_from_iterator(lines, trainer)
    vocabulary: dict[str, int] = learner.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _occurrences_at_share(pieces: list[str], words: Mapping[str, int]) -> int:
    speller = _speller(pieces)
    counts = np.zeros(len(pieces), dtype=np.int64)
    for word, count in words.items():
        for piece in speller.tokenize(word):
            counts[piece.id] += count
    learned = np.sort(counts[len(SPECIALS) + len(_BYTES) :])
    return int(learned[int((1 - _SHARE) * learned.size)]) if learned.size else 0


def _speller(pieces: list[str]) -> models.WordPiece:
    return models.WordPiece(
        vocab={piece: number for number, piece in enumerate(pieces)}, unk_token=UNKNOWN, continuing_subword_prefix=""
    )


def _fast(pieces: list[str]) -> PreTrainedTokenizerFast:
    core = Tokenizer(_speller(pieces))
    core.pre_tokenizer = _cutter()
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    numbers = {text: pieces.index(text) for text in (START, END)}
    core.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", pair=f"{START} $A {END} $B:1 {END}:1", special_tokens=list(numbers.items())
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token=UNKNOWN,
        cls_token=START,
        sep_token=END,
        pad_token=PADDING,
        mask_token=MASK,
        extra_special_tokens=[PARAGRAPH, TAB],
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )
