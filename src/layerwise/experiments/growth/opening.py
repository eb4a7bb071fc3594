"""Opening the model and the text that the options of a training in phases name.

Without a model it is that of `--size` (`layerwise.train.phases.random_init`), with a tokenizer learned from the text; a
folder or a hub id that is a configuration alone begins from random weights, a checkpoint from its own. Only whole
windows are trained on, so that every step reads as many tokens as any other.
"""

from __future__ import annotations

from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from layerwise.data.splits import Splits
from layerwise.data.text.bytepair import train_bytepair
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.data.text.language_modelling import TokenWindows, evenly_spaced, splits_of, whole
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import DataError
from layerwise.experiments.base_model import base_model
from layerwise.experiments.documents import divided_documents
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.growth.config import GrowthExperiment
from layerwise.experiments.growth.task import GrowthTask
from layerwise.experiments.opening import quiet_transformers
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.splits import TEXT_LENGTH
from layerwise.measure.cost.flops import model_cost
from layerwise.measure.language.evaluation_data import objective_of
from layerwise.stack import Stack
from layerwise.stack.checks.checkpoint_files import open_config
from layerwise.stack.max_length import longest_input
from layerwise.train.phases.random_init import SIZES, has_weights, random_model, vocabulary_size
from layerwise.train.training import Base

SHORT_LENGTH = 128
"""Tokens in a window of the text of a model without a configuration, unless `--max-length` says otherwise."""

VALIDATION_WINDOWS = 128
"""Windows that a training is validated on, at most, spread evenly: enough for a curve, and for the choice of a rate."""


def open_task(config: GrowthExperiment, reporter: Reporter, inputs: Inputs) -> GrowthTask:
    """Open the model, read the text, and count what the layers cost.

    Raises `DataError` for `--from-scratch` without a checkpoint, and what reading a model and a text raises.
    """
    quiet_transformers()
    model, stack = config.model, inputs.stack
    pretrained = stack is not None or (model is not None and has_weights(model, config.revision))
    if config.from_scratch and not pretrained:
        raise DataError(
            f"{model or SIZES[config.size].name} has no weights that --from-scratch could draw anew: it begins from "
            "random ones in any case; leave --from-scratch out"
        )
    if pretrained:
        assert model is not None, "an opened model has a name"
        opened = base_model(model, config, stack)
        base, stack = opened.base(), opened.stack
        name, division = divided_documents(config, config.seed, inputs.corpus)
    else:
        name, division = divided_documents(config, config.seed, inputs.corpus)
        base = _random_base(config, division.parts["train"], reporter)
        stack = base.open()
    for note in division.notes:
        reporter.log(f"note: {note}")
    length = config.max_length or (SHORT_LENGTH if model is None else TEXT_LENGTH)
    splits, left_out = _splits(stack, name, division.parts, length)
    return GrowthTask(
        base, stack, splits, Corpus(f"{name}, validation", division.parts["validation"]), length,
        model_cost(stack, length), pretrained=pretrained and not config.from_scratch,
        reinitialized=config.from_scratch, left_out=left_out,
    )  # fmt: skip


def _random_base(config: GrowthExperiment, documents: tuple[Document, ...], reporter: Reporter) -> Base:
    """Random weights by the configuration of the model, or that of a size; its tokenizer, or one that is learned."""
    model, size = config.model, SIZES[config.size]
    settings = None if model is None else open_config(model, config.revision)
    if config.tokenizer is not None:
        tokenizer = load_tokenizer(config.tokenizer)
    else:
        tokenizer = None if model is None else _tokenizer_beside(model, config.revision)
    if tokenizer is None:
        room = size.vocabulary if settings is None else vocabulary_size(settings, str(model))
        reporter.log(f"learning a vocabulary of {room:,} from {len(documents):,} documents")
        tokenizer = train_bytepair((each.text for each in documents), room)
    if settings is None:
        return random_model(size.config(tokenizer), tokenizer, size.name, device=config.device)
    return random_model(settings, tokenizer, str(model), device=config.device)


def _tokenizer_beside(model: str, revision: str | None) -> PreTrainedTokenizerBase | None:
    try:
        return load_tokenizer(model, revision=revision)
    except DataError:
        return None


def _splits(stack: Stack, name: str, parts: dict[str, tuple[Document, ...]], length: int) -> tuple[Splits, float]:
    """The text in windows, those to train on whole, those to validate on few; and the share that is left out."""
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer beside it; give one with --tokenizer PATH")
    positions = longest_input(stack.model)
    splits = splits_of(stack.tokenizer, name, parts, length=length, positions=positions, objective=objective_of(stack))
    train, validation = splits.train, splits.validation
    assert isinstance(train, TokenWindows), "a text is cut into windows"
    assert isinstance(validation, TokenWindows), "a text is cut into windows"
    kept = whole(train, length)
    tokens = sum(len(window.ids) for window in train.windows)
    left_out = 1 - length * len(kept) / tokens
    return replace(splits, train=kept, validation=evenly_spaced(validation, VALIDATION_WINDOWS)), left_out
