"""Validation on several processes that divide each batch, so that the loss is the same as on one process.

accelerate would give each process different batches, which does not work here: every batch has its own plan, and
processes with a sharded model must run the same layers together. Of P processes, process p takes the examples p, p + P,
p + 2P, ... of every batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from layerwise.data.batches import IGNORED
from layerwise.measure.stats.float64 import widest_dtype
from layerwise.train.measured import MeasuredTrainer


class DividedBatches(Sampler[list[int]]):
    """Batch sampler that yields the examples of one process out of every batch of `size` examples.

    If the last batch has no example for the process, the first example of the batch is yielded, because a sharded model
    must run on all processes. `DividedValidation` does not count it.

    >>> [list(DividedBatches(5, 4, 2, process)) for process in (0, 1)]
    [[[0, 2], [4]], [[1, 3], [4]]]
    """

    def __init__(self, examples: int, size: int, processes: int, process: int) -> None:
        self.batches = [range(start, min(start + size, examples)) for start in range(0, examples, size)]
        self.processes = processes
        self.process = process

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches:
            yield list(batch[self.process :: self.processes]) or [batch[0]]


class DividedValidation(MeasuredTrainer):
    """Trainer whose validation loss is the same for any number of processes, unless it has `compute_metrics`."""

    args: Any
    eval_dataset: Any
    data_collator: Any
    _divided: DividedBatches | None = None
    _losses: list[float]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        examples = self.eval_dataset if eval_dataset is None else eval_dataset
        if self.args.world_size == 1 or self.compute_metrics is not None or isinstance(examples, str | dict):
            return super().get_eval_dataloader(eval_dataset)
        self._divided = DividedBatches(
            len(examples), self.args.eval_batch_size, self.args.world_size, self.args.process_index
        )
        return DataLoader(
            examples,
            batch_sampler=self._divided,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._losses = []
        try:
            output: Any = super().evaluation_loop(*args, **kwargs)
            if self._divided is not None:
                sizes = [len(batch) for batch in self._divided.batches]
                mean = sum(loss * size for loss, size in zip(self._losses, sizes, strict=True)) / sum(sizes)
                output.metrics[f"{kwargs.get('metric_key_prefix', 'eval')}_loss"] = mean
        finally:
            self._divided = None
        return output

    def prediction_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        result: Any = super().prediction_step(model, inputs, *args, **kwargs)
        if self._divided is None:
            return result
        labels = inputs["labels"][..., 1:] if self._loss_shifts_labels else inputs["labels"]
        has_row = self._divided.process < len(self._divided.batches[len(self._losses)])
        count = int((labels != IGNORED).sum()) if has_row else 0
        loss, *others = result
        scored = torch.zeros(2, dtype=widest_dtype(loss.device), device=loss.device)
        if count:
            scored[0], scored[1] = loss * count, count
        scored = self.accelerator.reduce(scored, "sum")
        mean = scored[0] / scored[1]
        self._losses.append(float(mean))
        return (mean.to(loss.dtype), *others)

    def _get_num_items_in_batch(self, *args: Any, **kwargs: Any) -> Tensor | int | None:
        return None if self._divided is not None else super()._get_num_items_in_batch(*args, **kwargs)
