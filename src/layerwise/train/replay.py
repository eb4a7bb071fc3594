"""Replay: training examples whose chance is decided by where they are read, not by what was read before.

Augmentation draws from torch's global generator when an example is read, and a data loader reads ahead: at a checkpoint
the generator has moved past images that no step has seen yet, and a run that resumes there would see others. A
`Replayed` example is drawn with a generator that is seeded by (seed, epoch, number of the example), and the global
generator is left as it was. So a resumed training sees the images it would have seen, however many processes and
workers read them; and dropout, which also draws from the global generator, does not depend on the augmentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import torch
from transformers import TrainerCallback

from layerwise.data.splits import Example, Examples

_BYTES = 8


class Replayed(Examples):
    """`examples`, each drawn by (seed, epoch, number) alone; `turn_to` tells the epoch."""

    def __init__(self, examples: Examples, seed: int) -> None:
        self.examples = examples
        self.seed = seed
        # Shared memory: workers that outlive an epoch must learn of the next.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]

    def turn_to(self, epoch: int) -> None:
        """From now on examples are those of `epoch`."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        """The examples of one batch; the name is that which torch's data loader looks for."""
        epoch = int(self._epoch)
        before = torch.get_rng_state()
        try:
            return [self._drawn(epoch, index) for index in indices]
        finally:
            torch.set_rng_state(before)

    def _drawn(self, epoch: int, index: int) -> Example:
        place = sha256(f"{self.seed}/{epoch}/{index}".encode()).digest()
        torch.default_generator.manual_seed(int.from_bytes(place[:_BYTES], "big") >> 1)
        return self.examples[index]


class Epochs(TrainerCallback):
    """Tells the examples of a training which epoch begins."""

    def __init__(self, examples: Replayed) -> None:
        self.examples = examples

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.examples.turn_to(int(state.epoch or 0.0))
