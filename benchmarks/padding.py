"""When it pays to compute nothing but attention for padding: a step of ELC-BERT without padding and with it.

    python benchmarks/padding.py [--size small] [--rows 16] [--length 128] [--rounds 7] [--threads 1] [--compiled]

For batches of texts of equally spread lengths that are padded by a growing share, the seconds of a pass forward and
backward without padding as a share of those with it: both in turns, the median over rounds. Below 1 it pays. Then the
share of padding in the batches that a pretraining on the standard library's prose reads, at both lengths.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from layerwise.data.demo import python_stdlib
from layerwise.data.text.documents import Document
from layerwise.data.text.segments import cut, encode
from layerwise.data.text.span_masking import Draw, MaskedSegments, Padding, SpanMasking
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.stack.compilation import compiled_blocks

SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)


def pretraining_padding(rows: int, batches: int = 40) -> dict[int, float]:
    """The share of padding in batches of so many rows of a pretraining's segments, by their length."""
    texts = python_stdlib.documents("train", "prose")
    documents = [Document(each.module, each.text) for each in texts]
    tokenizer = train_wordpiece((each.text for each in documents), vocabulary=4_096)
    text = encode(tokenizer, documents)
    shares = {}
    for length in (128, 512):
        segments = cut(text, length)
        examples = MaskedSegments([segments], SpanMasking.of(tokenizer), tokenizer, seed=0)
        collate, draw = Padding(int(tokenizer.pad_token_id)), torch.Generator().manual_seed(0)
        real = total = 0
        for step in range(batches):
            chosen = torch.randint(len(segments), (rows,), generator=draw).tolist()
            batch = collate([examples[Draw(length, number, step, slot)] for slot, number in enumerate(chosen)])
            real += int(batch["attention_mask"].sum())
            total += batch["attention_mask"].numel()
        shares[length] = 1 - real / total
    return shares


def padded_batch(rows: int, length: int, share: float, vocabulary: int) -> dict[str, Tensor]:
    """Texts whose lengths are spread around their mean, (1 - share) * length, and never longer than `length`."""
    least = max(1, round(length * (1 - 2 * share)))
    lengths = torch.linspace(least, length, rows).round().long()
    real = (torch.arange(length) < lengths[:, None]).long()
    ids = torch.randint(vocabulary, (rows, length))
    labels = torch.where((torch.rand(rows, length) < 0.15) & (real == 1), ids, -100)
    return {"input_ids": ids, "attention_mask": real, "labels": labels}


def seconds(model: ElcForMaskedLM, batch: dict[str, Tensor], *, padding_free: bool) -> float:
    """The processor time of one pass forward and backward: other work on the machine does not count."""
    model.encoder.padding_free = padding_free
    begun = time.process_time()
    model(**batch).loss.backward()
    model.zero_grad()
    return time.process_time() - begun


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="small")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = ElcForMaskedLM(ElcConfig.of_size(options.size)).train()
    layers = model.encoder.layers
    context: AbstractContextManager[None] = compiled_blocks(layers, dynamic=True) if options.compiled else nullcontext()
    with context:
        for share in SHARES:
            batch = padded_batch(options.rows, options.length, share, model.config.vocab_size)
            found: dict[bool, list[float]] = {False: [], True: []}
            for number in range(options.rounds + 1):
                for padding_free in (False, True) if number % 2 else (True, False):
                    found[padding_free].append(seconds(model, batch, padding_free=padding_free))
            with_padding, without = (statistics.median(found[each][1:]) for each in (False, True))
            padding = 1 - batch["attention_mask"].float().mean().item()
            print(
                f"{padding:5.1%} padding: {with_padding * 1000:7.1f} ms, without {without * 1000:7.1f} ms: "
                f"{without / with_padding:.3f} x",
                flush=True,
            )
    for length, share in pretraining_padding(options.rows).items():
        print(f"a pretraining's segments of {length}, {options.rows} in a batch: {share:.1%} padding")


if __name__ == "__main__":
    main()
