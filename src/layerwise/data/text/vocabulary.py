"""Train tokenizers on the training text: WordPiece for masked language models, byte-pair encoding for decoders.

WordPiece: a space belongs to the following word, and each word is encoded greedily with the longest pieces. By default,
the vocabulary is the largest in which 95% of the learned pieces occur at least 100 times. Byte-pair encoding:
`<|endoftext|>` (token 0) begins each window and ends a document, and `<|pad|>` (token 1) is padding. Both vocabularies
contain all 256 bytes.
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
"""Special tokens with ids from 0. `[PAR]` ends a paragraph, `[TAB]` is a tab."""

END_OF_TEXT, FILLING = PAIR_SPECIALS = ("<|endoftext|>", "<|pad|>")

NEEDED: Mapping[str, str] = {"cls_token": START, "sep_token": END, "pad_token": PADDING, "mask_token": MASK}
"""Special tokens that pretraining requires: the name in transformers, and the usual text."""

MAX_VOCABULARY = 16_384
"""Maximum size of the default vocabulary, reached at about 100 million words."""

_STEP = 512
_MIN_OCCURRENCES = 100
_SHARE = 0.95
_MIN_PAIR_COUNT, _MIN_PIECE_COUNT = 2, 10
_BYTES = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))
_SMALLEST = 2 * _STEP
_BEFORE_SPACES = re.compile(r"(?<=[!-~])(?= [!-~])")


def train_wordpiece(texts: Iterable[str], *, vocabulary: int | None = None) -> PreTrainedTokenizerFast:
    """Train a WordPiece tokenizer deterministically.

    A sentence becomes `[CLS] pieces [SEP]`, a pair `[CLS] first [SEP] second [SEP]`. Adjacent pieces
    are merged if they occur together at least ten times.

    Args:
        texts: Training texts.
        vocabulary: Number of pieces (default: chosen by `choose_vocabulary_size`).

    Raises:
        DataError: If no text has a word, or `vocabulary` is too small for the special tokens and bytes.
    """
    words = _count_words(texts)
    if not words:
        raise DataError("The texts must have at least one word, because the vocabulary is learned from them, got none.")
    _check_size(vocabulary, SPECIALS, " Omit it to derive it from the text.")
    pieces = _learn_pieces(words, vocabulary or MAX_VOCABULARY)
    size = vocabulary or choose_vocabulary_size(pieces, words)
    return _build_fast(pieces[:size])


def train_bytepair(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Train a byte-pair tokenizer of at most `vocabulary` tokens deterministically.

    Raises `DataError` if all texts are empty, or if `vocabulary` is too small for the special tokens and bytes.
    """
    _check_size(vocabulary, PAIR_SPECIALS)
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    texts = tuple(texts)
    if not any(texts):
        raise DataError("All texts are empty, so no vocabulary can be learned from them.")
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=_MIN_PAIR_COUNT,
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


def choose_vocabulary_size(pieces: list[str], words: Mapping[str, int]) -> int:
    """Return the largest multiple of 512 (from 1,024) at which 95% of the learned pieces occur at least 100 times.

    `pieces` are in the order in which they were learned. `words` maps each word to its count.
    """
    sizes = list(range(_SMALLEST, len(pieces) + 1, _STEP))
    low, high = 0, len(sizes)
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = _occurrences_at_share(pieces[: sizes[middle]], words) >= _MIN_OCCURRENCES
        low, high = (middle, high) if is_enough else (low, middle)
    return sizes[low] if sizes else len(pieces)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    missing = [f"{role} (usually {text})" for role, text in NEEDED.items() if getattr(tokenizer, role, None) is None]
    if missing:
        raise DataError(
            f"Masked pretraining requires a tokenizer with {', '.join(missing)}, which {name} lacks. Add them "
            '(tokenizer.add_special_tokens({"mask_token": "[MASK]"})), pass another --tokenizer, or omit it to learn '
            "one from the text."
        )
    ids = {role: getattr(tokenizer, f"{role}_id") for role in NEEDED}
    same = [role for role, number in ids.items() if list(ids.values()).count(number) > 1]
    if same:
        raise DataError(f"The tokenizer {name} must have different tokens for {' and '.join(same)}, got one token.")


def _check_size(vocabulary: int | None, specials: Sequence[str], hint: str = "") -> None:
    min_size = len(specials) + len(_BYTES)
    if vocabulary is not None and vocabulary < min_size:
        raise DataError(
            f"The vocabulary must have at least {min_size} entries ({len(specials)} special tokens and {len(_BYTES)} "
            f"bytes), got {vocabulary}.{hint}"
        )


def _count_words(texts: Iterable[str]) -> Counter[str]:
    pre_tokenizer, counts = _pre_tokenizer(), Counter[str]()
    # Equal pieces are pre-tokenized once: no word spans a space between visible characters.
    for piece, count in Counter(piece for text in texts for piece in _BEFORE_SPACES.split(text)).items():
        for word, _ in pre_tokenizer.pre_tokenize_str(piece):
            counts[word] += count
    return counts


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.Digits(individual_digits=True)]
    )


def _learn_pieces(words: Mapping[str, int], size: int) -> list[str]:
    learner = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    # The words are already split, and each is repeated as often as it occurs.
    learner.pre_tokenizer = pre_tokenizers.CharDelimiterSplit("\n")
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=_MIN_PIECE_COUNT,
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
    model = _build_wordpiece(pieces)
    counts = np.zeros(len(pieces), dtype=np.int64)
    for word, count in words.items():
        for piece in model.tokenize(word):
            counts[piece.id] += count
    learned = np.sort(counts[len(SPECIALS) + len(_BYTES) :])
    return int(learned[int((1 - _SHARE) * learned.size)]) if learned.size else 0


def _build_wordpiece(pieces: list[str]) -> models.WordPiece:
    return models.WordPiece(
        vocab={piece: number for number, piece in enumerate(pieces)}, unk_token=UNKNOWN, continuing_subword_prefix=""
    )


def _build_fast(pieces: list[str]) -> PreTrainedTokenizerFast:
    core = Tokenizer(_build_wordpiece(pieces))
    core.pre_tokenizer = _pre_tokenizer()
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
