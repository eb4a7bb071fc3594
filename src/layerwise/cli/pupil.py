"""The pupil: the model that is to grow, and the text that it learns from, as the options name them.

Without a model it is the tiny one (`layerwise.train.growth.newborn`), with a tokenizer learned on the text; a folder or
a hub id that is a configuration alone begins from random weights, a checkpoint from its own. Without a text it is the
one that every machine has. Only whole windows are trained on, so that every step reads as many tokens as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from layerwise.cli.corpora import Corpora
from layerwise.cli.lesson import base_of
from layerwise.cli.materials import TEXT_LENGTH
from layerwise.cli.model import hush
from layerwise.data.bytepair import train_bytepair
from layerwise.data.corpus import Corpus
from layerwise.data.documents import Document
from layerwise.data.splits import Splits
from layerwise.data.texts import Texts, splits_of, spread, whole
from layerwise.data.tokenizer import load_tokenizer
from layerwise.errors import DataError
from layerwise.measure.flops import model_cost
from layerwise.measure.reading import objective_of
from layerwise.stack import Stack
from layerwise.stack.longest import longest_input
from layerwise.train.growth.newborn import TINY, VOCABULARY, has_weights, newborn, read_config, tiny
from layerwise.train.growth.pupil import Pupil
from layerwise.train.training import Base

TINY_LENGTH = 128
"""Tokens in a window of the tiny model's text, unless `--length` says otherwise."""

VALIDATION_WINDOWS = 128
"""Windows that a training is validated on, at most, spread evenly: enough for a curve, and for the choice of a rate."""

Say = Callable[[str], None]


def pupil_of(
    model: str | None,
    corpora: Corpora,
    tokenizer: str | None,
    layers: str | None,
    *,
    length: int | None,
    device: str,
    revision: str | None,
    from_scratch: bool,
    say: Say,
) -> Pupil:
    """Open the model, read the text, and count what the layers cost.

    Raises `DataError` for `--from-scratch` without a checkpoint, and what reading a model and a text raises.
    """
    hush()
    checkpoint = model is not None and has_weights(model, revision)
    if from_scratch and not checkpoint:
        raise DataError(
            f"{model or TINY} has no weights that --from-scratch could draw anew: it begins from random ones in any "
            "case; leave --from-scratch out"
        )
    if model is not None and checkpoint:
        opener = base_of(model, tokenizer, layers, device, revision)
        base, stack = opener.base(None), opener.stack
        name, found = corpora.divided()
    else:
        name, found = corpora.divided()
        base = _newborn(model, tokenizer, found.parts["train"], device, revision, say)
        stack = base.open()
    for note in found.notes:
        say(f"note: {note}")
    window = length or (TINY_LENGTH if model is None else TEXT_LENGTH)
    splits, left_out = _cut(stack, name, found.parts, window)
    return Pupil(
        base, stack, splits, Corpus(f"{name}, validation", found.parts["validation"]), window,
        model_cost(stack, window), trained=checkpoint and not from_scratch, redraws=from_scratch, left_out=left_out,
    )  # fmt: skip


def _newborn(
    model: str | None,
    tokenizer: str | None,
    documents: tuple[Document, ...],
    device: str,
    revision: str | None,
    say: Say,
) -> Base:
    """Random weights by the configuration of `model`, or the tiny model's; its tokenizer, or one that is learned."""
    config = None if model is None else read_config(model, revision)
    if tokenizer is not None:
        speller = load_tokenizer(tokenizer)
    else:
        speller = None if model is None else _beside(model, revision)
    if speller is None:
        size = VOCABULARY if config is None else int(config.get_text_config().vocab_size)
        say(f"learning a vocabulary of {size:,} from {len(documents):,} documents")
        speller = train_bytepair((each.text for each in documents), size)
    return newborn(config or tiny(speller), speller, model or TINY, device=device)


def _beside(model: str, revision: str | None) -> object | None:
    try:
        return load_tokenizer(model, revision=revision)
    except DataError:
        return None


def _cut(stack: Stack, name: str, parts: dict[str, tuple[Document, ...]], length: int) -> tuple[Splits, float]:
    """The text in windows, those to train on whole, those to validate on few; and the share that is left out."""
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer beside it; give one with --tokenizer PATH")
    positions = longest_input(stack.model)
    splits = splits_of(stack.tokenizer, name, parts, length=length, positions=positions, objective=objective_of(stack))
    train, validation = splits.train, splits.validation
    assert isinstance(train, Texts), "a text is cut into windows"
    assert isinstance(validation, Texts), "a text is cut into windows"
    kept = whole(train, length)
    tokens = sum(len(window.ids) for window in train.windows)
    left_out = 1 - length * len(kept) / tokens
    return replace(splits, train=kept, validation=spread(validation, VALIDATION_WINDOWS)), left_out
