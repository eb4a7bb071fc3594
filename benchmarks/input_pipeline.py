"""How fast masked segments are read, against 40 microseconds a segment on one core and 5,000 a second with two workers.

    python benchmarks/input_pipeline.py                 # random ids, segments of 128 tokens, batches of 256; a minute
    python benchmarks/input_pipeline.py --length 512    # the long segments of a pretraining

`masking` is one batch of examples, read and masked, divided by its segments, in processor time, so that other programs
count less; `one by one` masks the same segments each by itself, with `np.isin` and a generator of its own, as layerwise
did before. `loader` is a data loader with its collation and nothing that waits for it: what a training on an
accelerator can read. Rounds of all kinds are run in turns, and the best and the median are shown, since other programs
take from all alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice
from time import process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from layerwise.data.batches import IGNORED
from layerwise.data.text.segments import AROUND, Encoded, Segments
from layerwise.data.text.span_masking import Draw, MaskedSegments, Padding, SpanMasking
from layerwise.train.pretrain.curriculum import Batches, CurriculumPhase

VOCABULARY, SPECIAL, SEGMENTS = 16_384, 8, 8_192
MASKING_BAR, LOADER_BAR = 40.0, 5_000.0


def examples_of(length: int) -> MaskedSegments:
    """Segments of random ids, all of them full."""
    width = length - AROUND
    ids = np.random.default_rng(0).integers(SPECIAL, VOCABULARY, SEGMENTS * width, dtype=np.int32)
    starts = np.arange(SEGMENTS) * width
    text = Encoded(ids, np.append(starts, len(ids)), np.array([0, SEGMENTS]), ("random",))
    segments = Segments(text, length, starts, starts + width, np.zeros(SEGMENTS, dtype=np.int64))
    masking = SpanMasking(SPECIAL - 1, np.arange(SPECIAL, VOCABULARY, dtype=np.int64))
    tokenizer: Any = SimpleNamespace(cls_token_id=1, sep_token_id=2)
    return MaskedSegments([segments], masking, tokenizer, seed=0)


def one_by_one(examples: MaskedSegments, draws: list[Draw]) -> None:
    """Each segment masked by itself, without `[CLS]` and `[SEP]`."""
    masking = examples.masking
    for draw in draws:
        random = np.random.default_rng((0, 0, draw.step, draw.slot))
        ids = examples.segments[draw.length].ids(draw.segment).astype(np.int64)
        shown, targets = ids.copy(), np.full_like(ids, IGNORED)
        candidates = np.isin(ids, masking.ordinary)
        budget = int(masking.share * candidates.sum() + random.random())
        lengths = np.minimum(random.geometric(masking.stop, size=len(ids)), masking.longest)
        span = np.repeat(np.arange(len(ids)), lengths)[: len(ids)]
        in_order = np.argsort(random.permutation(span[-1] + 1)[span], kind="stable")
        chosen = in_order[candidates[in_order]][:budget]
        coins = random.random(span[-1] + 1)[span[chosen]]
        targets[chosen] = ids[chosen]
        shown[chosen[coins < 0.8]] = masking.mask
        replaced = chosen[(coins >= 0.8) & (coins < 0.9)]
        shown[replaced] = random.choice(masking.ordinary, size=len(replaced))


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """How long `work` takes by a clock."""
    begun = clock()
    work()
    return clock() - begun


def read(batches: Iterator[Any], count: int) -> None:
    """Read so many batches, and keep none."""
    for _ in islice(batches, count):
        pass


def main() -> None:
    """Print every figure with its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=24, help="batches a round of the loader")
    options = parser.parse_args()
    examples = examples_of(options.length)
    steps = options.rounds * (options.batches + 8) + 64
    order = Batches([CurriculumPhase(options.length, options.batch, 0, steps, SEGMENTS)], seed=0)
    drawn = list(islice(order, 4 * options.rounds))
    loaders = {
        workers: iter(
            DataLoader(
                examples,
                batch_sampler=order,
                collate_fn=Padding(0),
                num_workers=workers,
                prefetch_factor=4 if workers else None,
            )
        )
        for workers in (0, 1, 2)
    }
    masking, single = [], []
    speeds: dict[int, list[float]] = {workers: [] for workers in loaders}
    for draws in drawn:
        masking.append(1e6 * seconds(lambda draws=draws: examples.__getitems__(draws), process_time) / len(draws))
        single.append(1e6 * seconds(lambda draws=draws: one_by_one(examples, draws), process_time) / len(draws))
    for _ in range(options.rounds):
        for workers, loader in loaders.items():
            read(loader, 8 * workers)  # what was made while others were timed
            taken = seconds(lambda loader=loader: read(loader, options.batches))
            speeds[workers].append(options.batches * options.batch / taken)
    for name, values in (("masking", masking), ("one by one", single)):
        bar = f"   bar {MASKING_BAR:.0f}" if name == "masking" else ""
        print(f"{name:18} {min(values):8.1f} us a segment   median {statistics.median(values):8.1f}{bar}")
    for workers, values in speeds.items():
        bar = f"   bar {LOADER_BAR:,.0f}" if workers == 2 else ""
        middle = statistics.median(values)
        print(f"loader, {workers} workers  {max(values):8,.0f} segments/s     median {middle:8,.0f}{bar}")


if __name__ == "__main__":
    main()
