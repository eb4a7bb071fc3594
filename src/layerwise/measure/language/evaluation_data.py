"""A reading: a corpus as one model sees it, cut and batched, with everything that fixes the numbers written down."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch, LabelledBatch, Metric, batches, item, of_like_length, regrouped
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.tokens import Objective, Window, windows
from layerwise.errors import DataError, MeasureError
from layerwise.measure.stats.grid import MIN_DOCUMENTS, MIN_UNITS, WHOLE, Cell, Piece, resampling_unit, shuffle_pieces
from layerwise.stack import Stack
from layerwise.stack.max_length import longest_input

BATCH_TOKENS = 4096
"""Tokens that run together by default: enough to keep a CPU busy, little enough for a laptop's memory."""

# The longest window by default: long enough for context to matter, short enough for a laptop.
WINDOW = 512

# The shortest window where a shorter one would save time: with little context other layers matter.
CONTEXT = 256

MIN_WINDOW = 8
"""Tokens below which no window is worth proposing: nothing can be said of a model that has read so little."""


@dataclass(frozen=True)
class EvalData:
    """Batches of windows, their objective, and the name and digest of the text.

    Documents of the corpus's `answer_tasks` are prompts with an answer, scored by exact match. `repeated` documents
    (windows, of few documents) equal another one and are left out.
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
    """Split `corpus` into windows of at most `length` tokens, with at most `tokens` scored tokens in all.

    What is equal is read once: a repeated document would narrow every interval. Decoders are scored on the next token,
    masked language models on a seeded 15 % of masked tokens. Raises `DataError` without a tokenizer, `MeasureError`
    for a model that is not a language model.
    """
    given, corpus = corpus, corpus.distinct()
    objective = find_objective(stack)
    tokenizer = stack.tokenizer
    if tokenizer is None:
        raise DataError(
            f"{stack.source.name} has no tokenizer beside it, so it cannot read text; give one with "
            "--tokenizer FOLDER_OR_FILE"
        )
    positions = longest_input(stack.model)
    length = length or min(WINDOW, positions or WINDOW)
    every = windows(corpus, tokenizer, length, tokens, seed, objective=objective, positions=positions)
    cut = every
    if resampling_unit(len({(window.task, window.document) for window in every})) == "window":
        cut = tuple({(window.task, window.ids, window.scored_from): window for window in reversed(every)}.values())[
            ::-1
        ]
    padding = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if isinstance(i, int)), 0)
    made = batches(cut, batch_tokens, padding, tokenizer.mask_token_id)
    _refuse_foreign_tokens(stack, max(int(batch.inputs["input_ids"].max()) for batch in made))
    answers = tuple(sorted({document.task for document in corpus.documents if document.answer_start is not None}))
    repeated = len(given.documents) - len(corpus.documents) + len(every) - len(cut)
    return EvalData(corpus.name, _digest(corpus, cut, objective), length, objective, made, answers, repeated)


def refuse_too_little(data: EvalData) -> None:
    lacking = too_little(data)
    if lacking is not None:
        raise MeasureError(lacking)


def too_little(data: EvalData, parts: int = 1) -> str | None:
    """Return why a text (or one of `parts` equal parts) is too short, or `None` if it has at least 8 units."""
    if data.units >= MIN_UNITS:
        return None
    count = len(data.windows)
    what = "the text" if parts == 1 else f"a part of {parts} of the text"
    description = f"{data.name}: {what} makes {count} window{'s' * (count != 1)} of {data.tokens} scored tokens"
    if data.repeated:
        description += f" (without {data.repeated:,} that repeat another one)"
    needed = f"an interval, and so any conclusion, needs at least {MIN_UNITS} windows or documents"
    shorter = sum(window.scored_until - window.scored_from for window in data.windows) // MIN_UNITS
    cut = f", or shorter windows (--max-length {shorter})" if shorter >= MIN_WINDOW else ""
    enough = f"{parts * MIN_UNITS * data.length:,} tokens or more"
    return f"{description}, and {needed}: read {enough} (a longer text, or a larger --tokens){cut}"


def piece_lengths(data: EvalData, fewest: int = MIN_DOCUMENTS) -> dict[Piece, int]:
    whole = data.documents >= fewest
    lengths: dict[Piece, int] = {}
    for window in data.windows:
        piece = (window.task, window.document, WHOLE if whole else window.index)
        lengths[piece] = lengths.get(piece, 0) + window.scored
    return lengths


def select_pieces(data: EvalData, chosen: Collection[Piece]) -> EvalData:
    wanted = frozenset(chosen)
    kept = [
        window
        for window in data.windows
        if not wanted.isdisjoint((window.task, window.document, index) for index in (WHOLE, window.index))
    ]
    return replace(data, batches=regrouped(data.batches, kept))


def split(data: EvalData, seed: int) -> tuple[EvalData, EvalData]:
    """Split into halves without shared documents (or windows), stratified by task; `DataError` for a single window."""
    order = shuffle_pieces(piece_lengths(data), seed)
    if len(order) < 2:
        raise DataError(
            f"{data.name} is a single window of {data.tokens} tokens, and it has to be split in two halves: give "
            "a longer text, or shorter windows with --max-length"
        )
    return select_pieces(data, order[::2]), select_pieces(data, order[1::2])


def sample(data: EvalData, tokens: int, seed: int) -> EvalData:
    """Sample at most `tokens` scored tokens, spread over documents and tasks, in at least 8 units if possible.

    Windows with more than an eighth of the tokens are cut, except answers; the document is then called
    `<document>, windows of <scored>`, because its losses differ from those of whole windows.
    """
    if data.tokens <= tokens:
        return data
    cut = shorten(data, max(1, tokens // MIN_UNITS))
    of_document: dict[Piece, list[Window]] = {}
    for window in data.windows:
        of_document.setdefault((window.task, window.document, WHOLE), []).append(window)
    queue = [sorted(of_document[piece], key=lambda window: window.index) for piece in shuffle_pieces(of_document, seed)]
    kept: list[Window] = []
    spent = 0
    while queue := [mine for mine in queue if mine]:
        for mine in queue:
            window = mine.pop(0)
            scored = cut.get(window, window).scored
            if kept and spent + scored > tokens:
                return replace(data, batches=regrouped(data.batches, kept, cut))
            kept.append(window)
            spent += scored
    return replace(data, batches=regrouped(data.batches, kept, cut))


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
        whole = (window.document, window.index, window.ids, window.scored_from, window.scored_until)
        digest.update(repr(whole if window.masked is None else (*whole, window.masked)).encode())
    return digest.hexdigest()


def find_objective(stack: Stack) -> Objective:
    name = type(stack.model).__name__
    if name.endswith(("ForCausalLM", "LMHeadModel", "LMHead")):
        return "next_token"
    if name.endswith("ForMaskedLM"):
        return "masked_token"
    if getattr(stack.model, "main_input_name", None) == "pixel_values":
        raise MeasureError(
            f"{name} is not a language model: it reads images, and text has no loss under it; what it loses under "
            "other plans is measured by layerwise robustness MODEL --images FOLDER"
        )
    raise MeasureError(
        f"{name} is not a language model with a head, so text has no loss under it; load a ...ForCausalLM or "
        "...ForMaskedLM checkpoint, or pass your own batches in Python"
    )


def _refuse_foreign_tokens(stack: Stack, largest: int) -> None:
    vocabulary = int(stack.text_config.vocab_size)
    if largest >= vocabulary:
        raise DataError(
            f"the tokenizer gives token id {largest}, but the model's vocabulary has {vocabulary}: "
            "this tokenizer belongs to another model; give the right one with --tokenizer"
        )


def minibatches(data: EvalData, tokens: int) -> tuple[AnyBatch, ...]:
    windows = [window for batch in data.batches for window in batch.windows]
    return tuple(batch for group in of_like_length(windows, tokens) for batch in regrouped(data.batches, group))


LABELS = "labels"


def wrap_batches(stack: Stack, batches: Iterable[Mapping[str, Any]], metric: Metric | None = None) -> EvalData:
    """Return batches as data to evaluate plans on; every row is a unit that intervals resample.

    Args:
        stack: The model that reads the batches.
        batches: Dictionaries of tensors whose first dimension is the row, such as a `DataLoader` of dictionaries gives.
            The entries that are parameters of the model's forward are its inputs.
        metric: A function of the model's output and the batch (on the model's device) that returns one number per row,
            lower is better. By default the cross-entropy of `labels`, int64 (rows,), in nats.

    Raises:
        DataError: For what is not a dictionary of tensors with equally many rows, and for missing labels.
    """
    parameters = inspect.signature(stack.model.forward).parameters
    digest = hashlib.sha256(getattr(metric, "__qualname__", str(metric)).encode())
    made: list[LabelledBatch] = []
    rows = 0
    for batch in batches:
        tensors = _tensors(batch, None if metric is not None else LABELS)
        inputs = {name: value for name, value in tensors.items() if name in parameters and name != LABELS}
        if not inputs:
            raise DataError(
                f"a batch must have inputs of the model ({', '.join(parameters)}), got {', '.join(tensors)}."
            )
        count = len(next(iter(tensors.values())))
        for name, value in sorted(tensors.items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        targets = torch.zeros(count, dtype=torch.int64, device="cpu") if metric is not None else tensors[LABELS]
        names = tuple(item(str(row)) for row in range(rows, rows + count))
        made.append(LabelledBatch(inputs, targets, names, metric, tensors))
        rows += count
    if not made:
        raise DataError("batches must hold at least one batch, got none.")
    name = "own batches" if metric is None else f"own batches (by {getattr(metric, '__name__', 'metric')}, not nats)"
    return EvalData(name, digest.hexdigest(), 1, None, tuple(made))


def _tensors(batch: object, needed: str | None) -> dict[str, Tensor]:
    if not isinstance(batch, Mapping):
        raise DataError(f"a batch must be a dictionary of tensors, got {type(batch).__name__}.")
    tensors = {str(name): value for name, value in batch.items() if isinstance(value, Tensor) and value.ndim}
    sizes = {len(value) for value in tensors.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(f"the tensors of a batch must have equally many rows, got {sorted(sizes)}.")
    if needed is not None and (needed not in tensors or tensors[needed].ndim != 1):
        raise DataError(f"a batch must have {needed} of shape (rows,). Otherwise pass a metric(outputs, batch).")
    return tensors
