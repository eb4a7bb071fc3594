"""Whether self-speculative decoding is lossless: many prompts, random drafts, architecture after architecture.

    PYTHONPATH=tests python benchmarks/speculation_lossless.py --types 20 --prompts 1000
    python benchmarks/speculation_lossless.py --sampling

Tiny models of the contract tests' zoo, with random weights, in float64 where they can compute in it. Each generation
draws a draft (first layer gone, a random half of the layers, repeats, halves of layers, groups, another order, the
whole model), its length, and a batch; its tokens must be those of plain greedy `generate`. Where they are not, the
first token that differs is looked at: it is a tie if the logits of the two candidates are closer together than rounding
(1e-6 of their size), and a failure otherwise.

`--sampling`: the first two tokens that follow a prompt, drawn 100,000 times with a draft and as often without, for five
models: a chi-square test of homogeneity over the pairs, those that are expected fewer than 5 times taken together.
"""

from __future__ import annotations

import argparse
import random
import time
import zlib
from collections import Counter
from typing import Any

import torch
import transformers
from scipy.stats import chi2_contingency
from torch import Tensor

from layerwise.errors import LayerwiseError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.stack.speculation import speculative

TIE = 1e-6
NEW = 16


def drawn_draft(rng: random.Random, depth: int, halves: bool) -> Plan:
    """A draft of one of seven kinds."""
    whole = list(range(depth))
    some = sorted(rng.sample(whole, (depth + 1) // 2))
    kinds = ["first", "half", "repeat", "group", "order", "whole", "one gone"] + ["sublayers"] * halves
    match rng.choice(kinds):
        case "first":
            return Plan.of(whole[1:])
        case "half":
            return Plan.of(some)
        case "repeat":
            return Plan.parse(" ".join(f"{layer}*{rng.randint(1, 2)}" for layer in whole))
        case "group":
            return Plan.parse(f"{some[0]} ({some[1]}|{some[2]}) {whole[-1]}")
        case "order":
            rng.shuffle(whole)
            return Plan.of(whole)
        case "one gone":
            whole.remove(rng.choice(whole))
            return Plan.of(whole)
        case "sublayers":
            return Plan.parse(" ".join(f"{layer}{rng.choice(['', '.attn', '.mlp'])}" for layer in whole))
    return Plan.of(whole)


class Subject:
    """A tiny model of one type, and what it has shown so far."""

    def __init__(self, one: Any) -> None:
        from contracts import specimen

        self.name = one.model_type
        model = specimen.build(one)
        model.generation_config.eos_token_id = specimen.EOS
        model.generation_config.pad_token_id = specimen.PAD
        self.stack, self.dtype = in_float64(model)
        self.model: Any = self.stack.model
        self.counts: Counter[str] = Counter()
        try:
            self.stack.branches()
            self.halves = True
        except LayerwiseError:
            self.halves = False

    def compare(self, rng: random.Random, rows: int) -> None:
        """One batch of prompts, plainly and with a drawn draft."""
        draft = drawn_draft(rng, self.stack.depth, self.halves)
        way = speculative(self.stack, draft, tokens=rng.randint(1, 5), adapts=rng.random() < 0.5)
        generator = torch.Generator().manual_seed(rng.getrandbits(32))
        ids = torch.randint(3, 80, (rows, rng.randint(2, 12)), generator=generator)
        mask = torch.ones_like(ids)
        if rows > 1:
            mask[0, : ids.shape[1] // 2] = 0
        settings = {"attention_mask": mask, "max_new_tokens": NEW, "do_sample": False, "disable_compile": True}
        plain = self.model.generate(ids, **settings, return_dict_in_generate=True, output_logits=True)
        found = self.model.generate(ids, **settings, custom_generate=way)
        self.counts["drafts"] += way.passes.draft_passes
        self.counts["kept"] += way.passes.accepted
        for row in range(rows):
            self.counts["prompts"] += 1
            self.counts[verdict(plain, found, row, ids.shape[1])] += 1


def in_float64(model: Any) -> tuple[Stack, str]:
    """The model in float64, or as it is where it cannot compute in that."""
    try:
        wide = model.double()
        return load(wide), "float64"
    except (LayerwiseError, RuntimeError):
        return load(model.float()), "float32"


def verdict(plain: Any, found: Tensor, row: int, start: int) -> str:
    """`equal`, `tie` or `failed`."""
    length = max(plain.sequences.shape[1], found.shape[1])
    own, other = (torch.nn.functional.pad(ids[row], (0, length - ids.shape[1])) for ids in (plain.sequences, found))
    unlike = (own != other).nonzero()
    if not len(unlike):
        return "equal"
    position = int(unlike[0])
    if position - start >= len(plain.logits):
        return "failed"
    logits = plain.logits[position - start][row]
    gap = (logits[own[position]] - logits[other[position]]).abs() / logits.abs().max()
    return "tie" if gap < TIE else "failed"


def lossless(options: argparse.Namespace) -> None:
    from contracts.zoo import SUPPORTED

    done = 0
    total: Counter[str] = Counter()
    for one in SUPPORTED:
        if one.kind != "decoder" or done == options.types:
            continue
        start = time.process_time()
        subject = Subject(one)
        try:
            speculative(subject.stack, Plan.identity(subject.stack.depth))
        except LayerwiseError as refused:
            print(f"{one.model_type}: refused: {str(refused)[:150]}", flush=True)
            continue
        rng = random.Random(zlib.crc32(one.model_type.encode()))
        while subject.counts["prompts"] < options.prompts:
            left = options.prompts - subject.counts["prompts"]
            subject.compare(rng, min(left, 1 if rng.random() < options.single else options.batch))
        done += 1
        total += subject.counts
        counts = subject.counts
        print(
            f"{one.model_type} ({subject.dtype}): {counts['equal']} of {counts['prompts']} prompts equal, "
            f"{counts['tie']} ties, {counts['failed']} failures; {counts['drafts']} drafts, {counts['kept']} kept; "
            f"{time.process_time() - start:.0f} s",
            flush=True,
        )
    print(
        f"{done} types: {total['equal']:,} of {total['prompts']:,} prompts equal, {total['tie']} ties, "
        f"{total['failed']} failures; {total['drafts']:,} drafts, {total['kept']:,} kept"
    )


def sampling(draws: int) -> None:
    for seed, draft in enumerate(("0-3", "1-4", "0 2 4", "0-4", "4-0")):
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(
            vocab_size=12, hidden_size=16, intermediate_size=24, num_hidden_layers=5, num_attention_heads=2,
            num_key_value_heads=2, initializer_range=0.15, max_position_embeddings=32,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config).eval()
        model.generation_config.eos_token_id = None
        stack = load(model)
        ids = torch.tensor([[3, 7, 5]]).expand(500, -1)
        settings = {
            "attention_mask": torch.ones_like(ids), "max_new_tokens": 4, "do_sample": True, "top_k": 9,
            "temperature": 0.8, "pad_token_id": 0,
        }  # fmt: skip
        way = speculative(stack, draft, tokens=3, adapts=False)
        counts = []
        kept = drafted = 0
        for option in ({}, {"custom_generate": way}):
            pairs: Counter[int] = Counter()
            for _ in range(draws // len(ids)):
                new = model.generate(ids, **settings, **option)[:, 3:]
                pairs.update((new[:, 1] * 12 + new[:, 2]).tolist())
                kept, drafted = kept + way.passes.accepted, drafted + way.passes.draft_passes
            counts.append(pairs)
        often = [pair for pair in range(144) if counts[0][pair] + counts[1][pair] >= 10]
        table = [[count[pair] for pair in often] for count in counts]
        for row, count in zip(table, counts, strict=True):
            row.append(sum(count.values()) - sum(row))
        if not any(row[-1] for row in table):
            table = [row[:-1] for row in table]
        found = chi2_contingency(table)
        print(
            f"model {seed}, draft {draft}: chi-square {found.statistic:.1f}, {found.dof} degrees, "
            f"p = {found.pvalue:.3f}, {kept / drafted:.2f} of the drafts kept by all rows",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=1000, help="of each type")
    parser.add_argument("--batch", type=int, default=25, help="rows of a batch")
    parser.add_argument("--single", type=float, default=0.6, help="share of the generations with one prompt")
    parser.add_argument("--sampling", action="store_true")
    parser.add_argument("--draws", type=int, default=100_000)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if options.sampling:
        sampling(options.draws)
    else:
        lossless(options)


if __name__ == "__main__":
    main()
