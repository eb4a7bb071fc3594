"""Evaluation data: a corpus tokenized for one model, split into windows and batched."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from layerwise.data.batches import (
    AnyBatch,
    LabeledBatch,
    Metric,
    group_by_length,
    make_batches,
    make_item,
    regroup_batches,
)
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.tokens import Objective, Window, cut_windows
from layerwise.errors import DataError, MeasureError
from layerwise.measure.stats.grid import MIN_DOCUMENTS, MIN_UNITS, WHOLE, Cell, Piece, resampling_unit, shuffle_pieces
from layerwise.stack import Stack
from layerwise.stack.max_length import longest_input

BATCH_TOKENS = 4096

WINDOW = 512
"""Default maximum length of windows."""

CONTEXT = 256
"""Windows are shortened to at least this length to save time. With less context, other layers would matter."""

MIN_WINDOW = 8
"""Smallest window length that error messages suggest."""


@dataclass(frozen=True)
class EvalData:
    """A text as batches of windows, with the model's objective and the name and digest of the text.

    Documents of `answer_tasks` are prompts with an answer, scored by exact match. `repeated` is the number of duplicate
    documents (or windows, if there are few documents) that were removed.
    """

    name: str
    digest: str
    length: int
    objective: Objective | None
    batches: tuple[AnyBatch, ...]
    answer_tasks: tuple[str, ...] = ()
    repeated: int = 0

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(window for batch in self.batches for window in batch.windows)

    @property
    def cells(self) -> frozenset[Cell]:
        return frozenset((window.task, window.document, window.index) for window in self.windows)

    @property
    def documents(self) -> int:
        return len({(window.task, window.document) for window in self.windows})

    @property
    def units(self) -> int:
        return self.documents if resampling_unit(self.documents) == "document" else len(self.windows)

    @property
    def scored_answer_tasks(self) -> tuple[str, ...]:
        tasks = {window.task for window in self.windows}
        return tuple(task for task in self.answer_tasks if task in tasks)

    @property
    def tokens(self) -> int:
        return sum(window.scored for window in self.windows)


def tokenize(
    stack: Stack,
    corpus: Corpus,
    tokens: int | None = None,
    length: int | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
    seed: int = 0,
) -> EvalData:
    """Split `corpus` into windows of at most `length` tokens, with at most `tokens` scored tokens in total.

    Duplicate documents are removed, because they would make intervals too narrow. Causal models are scored on the next
    token, masked language models on 15 % of the tokens, which are masked at random.

    Args:
        stack: The model.
        corpus: The text.
        tokens: Maximum number of scored tokens (default: all).
        length: Maximum length of windows (default: 512, or the model's number of positions if that is smaller).
        batch_tokens: Number of tokens per batch.
        seed: Seed of the masked tokens and of the sample of windows.

    Raises:
        DataError: If there is no tokenizer, or it belongs to another model.
        MeasureError: If the model is not a language model.
    """
    given, corpus = corpus, corpus.distinct()
    objective = find_objective(stack)
    tokenizer = stack.tokenizer
    if tokenizer is None:
        raise DataError(
            f"{stack.source.name} needs a tokenizer to read text, got none. Pass one with --tokenizer FOLDER_OR_FILE."
        )
    positions = longest_input(stack.model)
    length = length or min(WINDOW, positions or WINDOW)
    every = cut_windows(corpus, tokenizer, length, tokens, seed, objective=objective, positions=positions)
    distinct = every
    if resampling_unit(len({(window.task, window.document) for window in every})) == "window":
        first_of = {(window.task, window.ids, window.scored_from): window for window in reversed(every)}
        distinct = tuple(first_of.values())[::-1]
    padding = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if isinstance(i, int)), 0)
    batched = make_batches(distinct, batch_tokens, padding, tokenizer.mask_token_id)
    _refuse_foreign_tokens(stack, max(int(batch.inputs["input_ids"].max()) for batch in batched))
    answers = tuple(sorted({document.task for document in corpus.documents if document.answer_start is not None}))
    repeated = len(given.documents) - len(corpus.documents) + len(every) - len(distinct)
    return EvalData(corpus.name, _digest(corpus, distinct, objective), length, objective, batched, answers, repeated)


def refuse_too_little(data: EvalData) -> None:
    message = too_little(data)
    if message is not None:
        raise MeasureError(message)


def too_little(data: EvalData, parts: int = 1) -> str | None:
    """Explain why the text (or each of `parts` equal parts) is too short for intervals, or return None if it is not."""
    if data.units >= MIN_UNITS:
        return None
    count = len(data.windows)
    text = "the text" if parts == 1 else f"each of {parts} parts of the text"
    available = f"{count} window{'s' * (count != 1)} with {data.tokens} scored tokens"
    if data.repeated:
        available += f" (after removing {data.repeated:,} duplicate{'s' * (data.repeated != 1)})"
    shorter = sum(window.scored_until - window.scored_from for window in data.windows) // MIN_UNITS
    cut = f", or shorter windows (--max-length {shorter})" if shorter >= MIN_WINDOW else ""
    enough = f"{parts * MIN_UNITS * data.length:,} tokens"
    return (
        f"{data.name}: {text} must have at least {MIN_UNITS} windows or documents for an interval, got {available}. "
        f"Use at least {enough} (a longer text, or a larger --tokens){cut}."
    )


def piece_lengths(data: EvalData, min_documents: int = MIN_DOCUMENTS) -> dict[Piece, int]:
    """Count the scored tokens of every document, or of every window for fewer than `min_documents` documents."""
    is_document = data.documents >= min_documents
    lengths: dict[Piece, int] = {}
    for window in data.windows:
        piece = (window.task, window.document, WHOLE if is_document else window.index)
        lengths[piece] = lengths.get(piece, 0) + window.scored
    return lengths


def select_pieces(data: EvalData, pieces: Collection[Piece]) -> EvalData:
    selected = frozenset(pieces)
    windows = [
        window
        for window in data.windows
        if not selected.isdisjoint((window.task, window.document, index) for index in (WHOLE, window.index))
    ]
    return replace(data, batches=regroup_batches(data.batches, windows))


def split(data: EvalData, seed: int) -> tuple[EvalData, EvalData]:
    """Split `data` into two halves that share no document (or no window, if documents are few), stratified by task.

    Raises `DataError` if there is only one window.
    """
    order = shuffle_pieces(piece_lengths(data), seed)
    if len(order) < 2:
        raise DataError(
            f"{data.name} must have at least 2 windows to be split into halves, got 1 ({data.tokens} tokens). Use a "
            "longer text or shorter windows (--max-length)."
        )
    return select_pieces(data, order[::2]), select_pieces(data, order[1::2])


def sample(data: EvalData, tokens: int, seed: int) -> EvalData:
    """Sample windows with at most `tokens` scored tokens, spread over tasks and, if possible, at least 8 documents.

    Windows with more than `tokens` / 8 scored tokens are shortened, unless they contain an answer. Their document is
    renamed `<document>, windows of <scored>`, because its losses differ from those of full windows.
    """
    if data.tokens <= tokens:
        return data
    cut = shorten(data, max(1, tokens // MIN_UNITS))
    documents: dict[Piece, list[Window]] = {}
    for window in data.windows:
        documents.setdefault((window.task, window.document, WHOLE), []).append(window)
    queues = [sorted(documents[piece], key=lambda window: window.index) for piece in shuffle_pieces(documents, seed)]
    sampled: list[Window] = []
    spent = 0
    while queues := [queue for queue in queues if queue]:
        for queue in queues:
            window = queue.pop(0)
            scored = cut.get(window, window).scored
            if sampled and spent + scored > tokens:
                return replace(data, batches=regroup_batches(data.batches, sampled, cut))
            sampled.append(window)
            spent += scored
    return replace(data, batches=regroup_batches(data.batches, sampled, cut))


def shorten(data: EvalData, scored: int) -> dict[Window, Window]:
    long = {
        (window.task, window.document)
        for window in data.windows
        if window.scored > scored and window.task not in data.answer_tasks
    }
    return {
        window: replace(window.beginning(scored), document=f"{window.document}, windows of {scored}")
        for window in data.windows
        if (window.task, window.document) in long
    }


def _digest(corpus: Corpus, cut: Sequence[Window], objective: Objective) -> str:
    digest = hashlib.sha256(f"{corpus.digest} {objective}\n".encode())
    for window in cut:
        fields = (window.document, window.index, window.ids, window.scored_from, window.scored_until)
        digest.update(repr(fields if window.masked is None else (*fields, window.masked)).encode())
    return digest.hexdigest()


def find_objective(stack: Stack) -> Objective:
    name = type(stack.model).__name__
    if name.endswith(("ForCausalLM", "LMHeadModel", "LMHead")):
        return "next_token"
    if name.endswith("ForMaskedLM"):
        return "masked_token"
    if getattr(stack.model, "main_input_name", None) == "pixel_values":
        raise MeasureError(
            f"The model must be a language model, got {name}, which reads images. Use `layerwise robustness MODEL "
            "--images FOLDER` instead."
        )
    raise MeasureError(
        f"The model must be a language model with a head, got {name}. Load a ...ForCausalLM or ...ForMaskedLM "
        "checkpoint, or pass batches in Python."
    )


def _refuse_foreign_tokens(stack: Stack, largest: int) -> None:
    vocabulary = int(stack.text_config.vocab_size)
    if largest >= vocabulary:
        raise DataError(
            f"Token ids must be below the model's vocabulary size {vocabulary}, got {largest}. The tokenizer belongs "
            "to another model; pass the right one with --tokenizer."
        )


def minibatches(data: EvalData, tokens: int) -> tuple[AnyBatch, ...]:
    windows = [window for batch in data.batches for window in batch.windows]
    return tuple(batch for group in group_by_length(windows, tokens) for batch in regroup_batches(data.batches, group))


LABELS = "labels"


def wrap_batches(stack: Stack, batches: Iterable[Mapping[str, Any]], metric: Metric | None = None) -> EvalData:
    """Wrap your own batches as data to evaluate plans on. Confidence intervals resample their rows.

    Args:
        stack: The model.
        batches: Dictionaries of tensors with the batch dimension first, such as those of a `DataLoader`. Entries named
            like a parameter of the model's `forward` are passed to it.
        metric: A function of the model's output and the batch (on the model's device). It returns one number per row,
            where lower is better (default: cross-entropy in nats with `labels`, int64 (batch,)).

    Raises:
        DataError: If a batch is not a dictionary of tensors with the same number of rows, or if it has no `labels` and
            there is no `metric`.
    """
    parameters = inspect.signature(stack.model.forward).parameters
    digest = hashlib.sha256(getattr(metric, "__qualname__", str(metric)).encode())
    wrapped: list[LabeledBatch] = []
    rows = 0
    for batch in batches:
        tensors = _tensors(batch, None if metric is not None else LABELS)
        inputs = {name: value for name, value in tensors.items() if name in parameters and name != LABELS}
        if not inputs:
            raise DataError(
                f"a batch must have an input of the model ({', '.join(parameters)}), got only {', '.join(tensors)}."
            )
        count = len(next(iter(tensors.values())))
        for name, value in sorted(tensors.items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        targets = torch.zeros(count, dtype=torch.int64, device="cpu") if metric is not None else tensors[LABELS]
        names = tuple(make_item(str(row)) for row in range(rows, rows + count))
        wrapped.append(LabeledBatch(inputs, targets, names, metric, tensors))
        rows += count
    if not wrapped:
        raise DataError("There must be at least one batch, got none.")
    name = "own batches" if metric is None else f"own batches (by {getattr(metric, '__name__', 'metric')}, not nats)"
    return EvalData(name, digest.hexdigest(), 1, None, tuple(wrapped))


def _tensors(batch: object, required: str | None) -> dict[str, Tensor]:
    if not isinstance(batch, Mapping):
        raise DataError(f"a batch must be a dictionary of tensors, got {type(batch).__name__}.")
    tensors = {str(name): value for name, value in batch.items() if isinstance(value, Tensor) and value.ndim}
    sizes = {len(value) for value in tensors.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(f"the tensors of a batch must have the same number of rows, got {sorted(sizes)}.")
    if required is not None and (required not in tensors or tensors[required].ndim != 1):
        raise DataError(f"a batch must have {required} of shape (rows,). Add them or pass a metric(outputs, batch).")
    return tensors
