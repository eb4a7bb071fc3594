"""Batches of token windows of similar length, padded on the right, with their targets.

Batches depend only on the windows and the settings, so a resumed run gives bitwise equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from layerwise.data.text.tokens import Window
from layerwise.errors import DataError

IGNORED = -100
"""Target of positions that are not scored: the default `ignore_index` of torch's cross entropy."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A batch of windows as int64 tensors of shape (batch, seq).

    `targets[b, t]` is the token to predict at position t: the token at t + 1 for a next-token loss, or the original
    token at t for a masked-token loss. It is `IGNORED` if the position is not scored.
    """

    input_ids: Tensor
    attention_mask: Tensor
    targets: Tensor
    windows: tuple[Window, ...]

    @property
    def inputs(self) -> dict[str, Tensor]:
        return {"input_ids": self.input_ids, "attention_mask": self.attention_mask}

    @property
    def scored(self) -> Tensor:
        """Mask (batch, seq) of the scored positions."""
        return self.targets != IGNORED

    @property
    def size(self) -> int:
        return self.input_ids.numel()


Metric = Callable[[Any, Mapping[str, Tensor]], Tensor]
"""Function of a model's output and the `given` tensors of a batch that returns one number per row; lower is better."""


@dataclass(frozen=True, slots=True, eq=False)
class LabeledBatch:
    """A batch of items with one label each, such as images.

    `inputs` are the keyword arguments of `forward`. `targets` are int64 labels (batch,), or, for sentences, the
    embeddings (batch, width) of the original model. The entries of `windows` name the items. If there is a `metric`, it
    replaces the loss and is called with the model's output and the tensors `given`.
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    windows: tuple[Window, ...]
    metric: Metric | None = None
    given: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.windows)


AnyBatch = Batch | LabeledBatch

Row = tuple[Tensor, Tensor]
"""Ids and targets of one window, without padding."""


def make_item(document: str) -> Window:
    return Window(document, "label", 0, (), 0, 1)


def make_batches(
    windows: Sequence[Window],
    tokens_per_batch: int,
    pad_id: int,
    mask_id: int | None = None,
) -> tuple[Batch, ...]:
    """Group windows into batches of at most `tokens_per_batch` tokens, including padding, the longest first.

    A longer window is a batch by itself. In masked windows, `mask_id` replaces the masked tokens, which are the
    targets. Raises `DataError` if there are no windows, if the batch size is below 1, or if a window is masked and
    `mask_id` is None.
    """
    if not windows:
        raise DataError("A batch must have at least one window, got none. Pass a text with at least 2 tokens.")
    if tokens_per_batch < 1:
        raise DataError(f"The batch size must be at least 1 token, got {tokens_per_batch}.")
    rows = {window: build_row(window, mask_id) for window in windows}
    return tuple(_padded_batch(group, rows, pad_id) for group in group_by_length(windows, tokens_per_batch))


def build_row(window: Window, mask_id: int | None) -> Row:
    """Build the input ids and targets of a window, both (seq,).

    Raises `DataError` if the window is masked and `mask_id` is None.
    """
    if window.masked is None:
        ids, labels = build_labeled_row(window)
        return ids, pad(labels[1:], (0, 1), value=IGNORED)
    if mask_id is None:
        raise DataError("A masked-language-model loss requires a mask token. Pass a --tokenizer that has one.")
    ids = torch.tensor(window.ids, device="cpu")
    targets = torch.full_like(ids, IGNORED)
    positions = torch.tensor(window.masked, dtype=torch.int64, device="cpu")
    targets[positions] = ids[positions]
    ids[positions] = mask_id
    return ids, targets


def build_labeled_row(window: Window) -> Row:
    """Build the ids and labels of a window, both (seq,). Labels are not shifted."""
    ids = torch.tensor(window.ids, device="cpu")
    labels = torch.full_like(ids, IGNORED)
    scored = slice(window.scored_from, window.scored_until)
    labels[scored] = ids[scored]
    return ids, labels


def group_by_length(windows: Sequence[Window], tokens: int) -> Iterator[list[Window]]:
    """Yield groups of windows with at most `tokens` tokens, including padding, the longest first.

    Within a group, no window is more than twice as long as another. A window with more than `tokens` tokens is a group
    by itself. A labeled item counts as one token.
    """
    # Longest first, so that a batch that does not fit into memory fails at once.
    group: list[Window] = []
    for window in sorted(windows, key=lambda window: -len(window.ids)):
        widest = max(1, len(group[0].ids)) if group else 0
        if group and ((len(group) + 1) * widest > tokens or widest > 2 * max(1, len(window.ids))):
            yield group
            group = []
        group.append(window)
    if group:
        yield group


def regroup_batches(
    existing: Sequence[AnyBatch], windows: Collection[Window], truncated: Mapping[Window, Window] | None = None
) -> tuple[AnyBatch, ...]:
    """Rebuild batches with only the given `windows`, keeping their targets and masks.

    Token windows form new batches, at most as large as the largest existing one. If `truncated` maps a window to a
    shorter one, the shorter one is used. Labeled items stay in their batches. Raises `DataError` if no window remains.
    """
    selected = frozenset(windows)
    rows: dict[Window, Row] = {}
    labeled: list[AnyBatch] = []
    for batch in existing:
        indices = [row for row, window in enumerate(batch.windows) if window in selected]
        if isinstance(batch, LabeledBatch):
            if indices:
                inputs, given = ({k: v[indices] for k, v in each.items()} for each in (batch.inputs, batch.given))
                names = tuple(batch.windows[row] for row in indices)
                labeled.append(LabeledBatch(inputs, batch.targets[indices], names, batch.metric, given))
        else:
            for row in indices:
                full = batch.windows[row]
                length = int(batch.attention_mask[row].sum())
                tensors = (batch.input_ids[row, :length], batch.targets[row, :length])
                window = (truncated or {}).get(full, full)
                rows[window] = tensors if window.ids == full.ids else _truncate(tensors, full, window)
    if not rows and not labeled:
        raise DataError("At least one document must remain, got none.")
    groups = group_by_length(list(rows), max(batch.size for batch in existing))
    return (*(_padded_batch(group, rows) for group in groups), *labeled)


def _truncate(row: Row, full: Window, window: Window) -> Row:
    positions = [*range(window.scored_until), *range(full.scored_until, len(full.ids))]
    ids, targets = (values[positions] for values in row)
    if window.masked is None:
        targets[window.scored_until - 1] = IGNORED  # the next token was removed
    return ids, targets


def _padded_batch(group: Sequence[Window], rows: Mapping[Window, Row], pad_id: int = 0) -> Batch:
    members = [dict(zip(("input_ids", "labels"), rows[window], strict=True)) for window in group]
    batch = pad_rows(members, pad_id)
    return Batch(batch["input_ids"], batch["attention_mask"], batch["labels"], tuple(group))


def pad_rows(rows: Sequence[Mapping[str, Tensor]], pad_id: int, multiple: int = 1) -> dict[str, Tensor]:
    """Pad rows (seq,) on the right and stack them to (batch, seq), where seq is a multiple of `multiple`.

    Adds an "attention_mask" unless the rows have "position_ids", which separate texts.
    """
    lengths = torch.tensor([len(row["input_ids"]) for row in rows], device="cpu")
    width = -(-int(lengths.max()) // multiple) * multiple
    fill = {"input_ids": pad_id, "labels": IGNORED, "position_ids": 0}
    batch = {}
    for name in rows[0]:
        stacked = pad_sequence([row[name] for row in rows], batch_first=True, padding_value=fill[name])
        batch[name] = pad(stacked, (0, width - stacked.shape[1]), value=fill[name])
    if "position_ids" not in batch:
        batch["attention_mask"] = (torch.arange(width, device="cpu") < lengths[:, None]).long()
    return batch
