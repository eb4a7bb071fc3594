"""Per-example random state that depends only on the position in the data, so resumed runs match.

A data loader reads ahead: at a checkpoint, torch's global generator has advanced past examples that no step has used.
A `ReproducibleDataset` therefore seeds the generator with (seed, epoch, index) for every example, and restores its
state afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import cycle, islice
from random import Random

import torch
from torch.utils.data import Sampler

from layerwise.data.splits import Example, Examples

_BYTES = 8
_POOL = 50


class ReproducibleDataset(Examples):
    """Dataset whose random augmentation depends only on (seed, epoch, index); the Trainer calls `set_epoch`."""

    def __init__(self, examples: Examples, seed: int) -> None:
        self.examples = examples
        self.seed = seed
        # Shared memory, because persistent workers must see the next epoch.
        self._epoch = torch.zeros((), dtype=torch.int64, device="cpu")
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        """Return the examples of one batch (torch's data loader calls this method)."""
        before = torch.get_rng_state()
        try:
            return [self._draw(index) for index in indices]
        finally:
            torch.set_rng_state(before)

    def _draw(self, index: int) -> Example:
        digest = sha256(f"{self.seed}/{self.epoch}/{index}".encode()).digest()
        torch.default_generator.manual_seed(int.from_bytes(digest[:_BYTES], "big") >> 1)
        return self.examples[index]


class LengthGroupedSampler(Sampler[int]):
    """Sampler of shuffled indices of `examples`.

    If `alike` is given, texts of similar length are grouped into batches of `alike` texts. The first indices are
    repeated at the end until their number is a multiple of `batch`. Otherwise, the examples of the last batch would
    depend on the number of processes.
    """

    def __init__(self, examples: ReproducibleDataset, alike: int | None = None, batch: int = 1) -> None:
        self.examples = examples
        self.alike = alike
        self.batch = batch
        self._lengths = [len(examples[number]["input_ids"]) for number in range(len(examples))] if alike else []

    def __len__(self) -> int:
        return -(-len(self.examples) // self.batch) * self.batch

    def __iter__(self) -> Iterator[int]:
        chance = Random(f"{self.examples.seed}/{self.examples.epoch}")
        order = list(range(len(self.examples)))
        chance.shuffle(order)
        if self.alike is not None:
            order = list(self._by_length(order, self.alike, chance))
        return islice(cycle(order), len(self))

    def _by_length(self, order: list[int], batch: int, chance: Random) -> Iterator[int]:
        pools = (order[start : start + _POOL * batch] for start in range(0, len(order), _POOL * batch))
        row = [number for pool in pools for number in sorted(pool, key=self._lengths.__getitem__)]
        batches = [row[start : start + batch] for start in range(0, len(row), batch)]
        rest = batches.pop() if len(row) % batch else []  # an incomplete batch must be the last
        chance.shuffle(batches)
        return (number for batch in (*batches, rest) for number in batch)
