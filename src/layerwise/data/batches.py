"""Batches: windows of similar length, padded on the right, with their targets.

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
"""The target of a position that is not scored; the value torch's cross entropy passes over."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Windows that run through the model together, as int64 tensors of shape (batch, seq).

    `targets[b, t]` is the token to predict at position t, or `IGNORED`: the token at t + 1 for a next-token loss, the
    original token at t for a masked-token loss.
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
        """(batch, seq) booleans: the positions whose output is scored."""
        return self.targets != IGNORED

    @property
    def size(self) -> int:
        return self.input_ids.numel()


Metric = Callable[[Any, Mapping[str, Tensor]], Tensor]
"""A function of a model's output and a batch that returns one number per row, lower is better."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledBatch:
    """Items with one label each, such as images; evaluates models of `...ForImageClassification`.

    `inputs` are keyword arguments of forward with `batch` rows. `targets` is int64 (batch,), or for sentences the
    embeddings (batch, width) of the original model. `windows` names the items, one target each. A `metric` of the
    model's output and the tensors `given` replaces the loss of the targets.
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    windows: tuple[Window, ...]
    metric: Metric | None = None
    given: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.windows)


AnyBatch = Batch | LabelledBatch

Row = tuple[Tensor, Tensor]
"""The ids and the targets of one window, without padding."""


def item(document: str) -> Window:
    return Window(document, "label", 0, (), 0, 1)


def batches(
    windows: Sequence[Window],
    tokens_per_batch: int,
    pad_id: int,
    mask_id: int | None = None,
) -> tuple[Batch, ...]:
    """The windows in batches of at most `tokens_per_batch` tokens, padding counted, the longest first.

    A window longer than `tokens_per_batch` is a batch of its own. Where a window says which of its tokens are masked,
    `mask_id` stands in their place, and they are the targets.

    Raises `DataError` without windows, for a batch size below 1, or for masked windows without `mask_id`.
    """
    if not windows:
        raise DataError("there is no window to make a batch of: give a text with at least 2 tokens")
    if tokens_per_batch < 1:
        raise DataError(f"a batch of {tokens_per_batch} tokens holds nothing: use 1 or more")
    rows = {window: row_of(window, mask_id) for window in windows}
    return tuple(_padded_batch(group, rows, pad_id) for group in of_like_length(windows, tokens_per_batch))


def row_of(window: Window, mask_id: int | None) -> Row:
    """Return the input ids and targets of a window, both (seq,); raises `DataError` for a mask without `mask_id`."""
    if window.masked is None:
        ids, labels = labelled(window)
        return ids, pad(labels[1:], (0, 1), value=IGNORED)
    if mask_id is None:
        raise DataError("a masked-language-model loss needs a mask token: pass a tokenizer that has one (--tokenizer)")
    ids = torch.tensor(window.ids, device="cpu")
    targets = torch.full_like(ids, IGNORED)
    chosen = torch.tensor(window.masked, dtype=torch.int64, device="cpu")
    targets[chosen] = ids[chosen]
    ids[chosen] = mask_id
    return ids, targets


def labelled(window: Window) -> Row:
    """The ids of a window and those that are scored in their own places, both (seq,); the model shifts them itself."""
    ids = torch.tensor(window.ids, device="cpu")
    labels = torch.full_like(ids, IGNORED)
    scored = slice(window.scored_from, window.scored_until)
    labels[scored] = ids[scored]
    return ids, labels


def of_like_length(windows: Sequence[Window], tokens: int) -> Iterator[list[Window]]:
    """Group windows into at most `tokens` tokens, padding included, the longest first.

    No window is more than twice as long as another of its group. A window longer than `tokens` is a group of its own; a
    labeled item fills one position.
    """
    # Longest first, so that a batch which does not fit the memory fails at once and not in the last minute.
    group: list[Window] = []
    for window in sorted(windows, key=lambda window: -len(window.ids)):
        widest = max(1, len(group[0].ids)) if group else 0
        if group and ((len(group) + 1) * widest > tokens or widest > 2 * max(1, len(window.ids))):
            yield group
            group = []
        group.append(window)
    if group:
        yield group


def regrouped(
    made: Sequence[AnyBatch], kept: Collection[Window], cut: Mapping[Window, Window] | None = None
) -> tuple[AnyBatch, ...]:
    """Return batches of only the windows `kept`, with the targets and masks they already have.

    Token windows are batched again, up to the largest batch of `made`; those in `cut` are replaced by their beginnings.
    Labeled items stay in their batches. Raises `DataError` if nothing is left.
    """
    wanted = frozenset(kept)
    rows: dict[Window, Row] = {}
    labelled: list[AnyBatch] = []
    for batch in made:
        chosen = [row for row, window in enumerate(batch.windows) if window in wanted]
        if isinstance(batch, LabelledBatch):
            if chosen:
                inputs, given = ({k: v[chosen] for k, v in each.items()} for each in (batch.inputs, batch.given))
                names = tuple(batch.windows[row] for row in chosen)
                labelled.append(LabelledBatch(inputs, batch.targets[chosen], names, batch.metric, given))
        else:
            for row in chosen:
                whole = batch.windows[row]
                length = int(batch.attention_mask[row].sum())
                tensors = (batch.input_ids[row, :length], batch.targets[row, :length])
                window = (cut or {}).get(whole, whole)
                rows[window] = tensors if window.ids == whole.ids else _beginning(tensors, whole, window)
    if not rows and not labelled:
        raise DataError("no window is left: keep at least one document")
    groups = of_like_length(list(rows), max(batch.size for batch in made))
    return (*(_padded_batch(group, rows) for group in groups), *labelled)


def _beginning(row: Row, whole: Window, window: Window) -> Row:
    kept = [*range(window.scored_until), *range(whole.scored_until, len(whole.ids))]
    ids, targets = (values[kept] for values in row)
    if window.masked is None:
        # What comes next is no longer there to be predicted.
        targets[window.scored_until - 1] = IGNORED
    return ids, targets


def _padded_batch(group: Sequence[Window], rows: Mapping[Window, Row], pad_id: int = 0) -> Batch:
    members = [dict(zip(("input_ids", "labels"), rows[window], strict=True)) for window in group]
    batch = padded(members, pad_id)
    return Batch(batch["input_ids"], batch["attention_mask"], batch["labels"], tuple(group))


def padded(rows: Sequence[Mapping[str, Tensor]], pad_id: int, multiple: int = 1) -> dict[str, Tensor]:
    """Pad tensors (seq,) on the right into (batch, seq), with seq rounded up to `multiple`.

    Adds an "attention_mask" unless the rows have "position_ids", which say which tokens belong together.
    """
    lengths = torch.tensor([len(row["input_ids"]) for row in rows], device="cpu")
    width = -(-int(lengths.max()) // multiple) * multiple
    fill = {"input_ids": pad_id, "labels": IGNORED, "position_ids": 0}
    batch = {}
    for name in rows[0]:
        beside = pad_sequence([row[name] for row in rows], batch_first=True, padding_value=fill[name])
        batch[name] = pad(beside, (0, width - beside.shape[1]), value=fill[name])
    if "position_ids" not in batch:
        batch["attention_mask"] = (torch.arange(width, device="cpu") < lengths[:, None]).long()
    return batch
