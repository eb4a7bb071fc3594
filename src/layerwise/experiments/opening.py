"""Opening the model and the text that options name, and the model that trainings begin from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from transformers.utils import logging

import layerwise.models  # noqa: F401  (its architectures become known to transformers)
from layerwise.data.model_location import location_of
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import TrainError
from layerwise.experiments.options.common import BATCH_TOKENS, LoadingOptions, ModelOptions, TextOptions
from layerwise.experiments.reporter import Reporter, waiting
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.search.texts import by_document
from layerwise.stack import Stack, load, weight_hash
from layerwise.stack.quantisation import refuse_quantised
from layerwise.stack.streaming.resident import refuse_on_disk
from layerwise.train.finetune.new_head import with_new_head
from layerwise.train.training import Base


def quiet_transformers() -> None:
    """Turn off transformers' progress bars and advice: layerwise reports what matters of them itself."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def open_model(
    options: LoadingOptions,
    *,
    model: str,
    dtype: str = "auto",
    trust_remote_code: bool = False,
    resident_layers: int | None = None,
    device_map: str | None = None,
) -> Stack:
    """The model called `model`, opened as the options say; `tokenizer` replaces the one beside it."""
    quiet_transformers()
    path = options.tokenizer
    tokenizer = load_tokenizer(path, trust_remote_code=trust_remote_code) if path else None
    return load(
        model, layers=options.layers, tokenizer=tokenizer, device=options.device, dtype=dtype,
        revision=options.revision, trust_remote_code=trust_remote_code, resident_layers=resident_layers,
        device_map=device_map,
    )  # fmt: skip


def open_named(config: ModelOptions, reporter: Reporter) -> Stack:
    """The model that the options name. transformers stays quiet. Raises `ModelError` where it cannot be opened."""
    with waiting(reporter, f"loading {config.model}"):
        return open_model(
            config, model=config.model, dtype=config.dtype, trust_remote_code=config.trust_remote_code,
            **config.placement(),
        )  # fmt: skip


def tokenized(
    config: TextOptions, stack: Stack, corpus: Corpus, reporter: Reporter, seed: int, batch_tokens: int = BATCH_TOKENS
) -> EvalData:
    """The text that the options name, in windows for `stack`; `batch_tokens` where they do not say it."""
    with waiting(reporter, f"tokenizing {corpus.name}"):
        return tokenize(
            stack, corpus, length=config.max_length, tokens=config.tokens,
            batch_tokens=config.batch_tokens or batch_tokens, seed=seed,
        )  # fmt: skip


def first_windows(data: EvalData, count: int, length: int) -> list[torch.Tensor]:
    """The beginnings of `count` documents, (1, length) each, or as long as the document's first window is."""
    windows = [window for window in data.windows if window.index == 0] or list(data.windows)
    return [torch.tensor([window.ids[:length]]) for window in windows[:count]]


def divided_sentence(text: EvalData, parts: Mapping[str, EvalData]) -> str:
    """How a text was divided, and how much each part scores."""
    what = "document" if by_document(text) else "window"
    counted = ", ".join(f"{name} {part.tokens:,}" for name, part in parts.items())
    return f"texts, disjoint by {what}, in scored tokens: {counted}"


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A model that trainings begin from, opened once to be looked at.

    `location` is what transformers would load, or `None` for a model that was opened in Python; `again` opens another
    copy.
    """

    stack: Stack
    location: str | None
    again: Callable[[], Stack]
    device: str
    revision: str | None

    def base(self, classes: tuple[str, ...] | None = None) -> Base:
        """What trainings begin from: the model, or with `classes` the model with a new head for them.

        Raises `TrainError` for a new head of a model that was opened in Python.
        """
        weights = weight_hash(self.stack.model)
        if classes is None:
            return Base(self.again, weights, self.location)
        if self.location is None:
            raise TrainError("a new head needs a model that can be loaded again: give its name or its folder")
        with_head = partial(with_new_head, self.location, classes, device=self.device, revision=self.revision)
        return Base(with_head, weights, self.location)


def base_model(model: str, options: LoadingOptions, stack: Stack | None = None) -> BaseModel:
    """Open the model called `model` with weights in float32, or take copies of an opened `stack`."""
    if stack is not None:
        refuse_quantised(stack.model, "train")
        refuse_on_disk(stack.model, "train")
        return BaseModel(stack, None, partial(_copy, stack), stack.device.type, None)
    again = partial(open_model, options, model=model, dtype="float32")
    opened = again()
    refuse_quantised(opened.model, "train")
    return BaseModel(opened, location_of(model), again, options.device, options.revision)


def _copy(stack: Stack) -> Stack:
    copied = copy.deepcopy(stack)
    copied.model.float()
    return copied
