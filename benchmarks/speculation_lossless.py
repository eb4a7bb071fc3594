"""Whether self-speculative decoding is lossless: many prompts, random drafts, architecture after architecture.

    PYTHONPATH=tests python benchmarks/speculation_lossless.py --types 20 --prompts 1000
    python benchmarks/speculation_lossless.py --sampling
    python benchmarks/speculation_lossless.py --sampling --control

Tiny models of the contract tests' zoo, with random weights, in float64 where they can compute in it. Each generation
draws a draft (first layer gone, a random half of the layers, repeats, halves of layers, groups, another order, the
whole model), its length, and a batch; its tokens must be those of plain greedy `generate`. Where they are not, the
first token that differs is looked at: it is a tie if the logits of the two candidates are closer together than rounding
(1e-6 of their size), and a failure otherwise.

`--sampling`: five tokens that follow a prompt, drawn 100,000 times with a draft, for five architectures with random
weights: a chi-square test of the counts of all continuations against the probabilities that the model's logits give
them, one by one and without a cache. In a batch a draft is kept only if all rows keep it, so batches are small, and the
models such that most drafts are kept. With `--control` rejected drafts are replaced by tokens of the model's own
distribution instead of the residual one, which the test must find.
"""

from __future__ import annotations

import argparse
import math
import random
import time
import zlib
from collections import Counter
from typing import Any

import torch
import transformers
from scipy.stats import chisquare
from torch import Tensor

from layerwise.errors import LayerwiseError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.stack.speculation import acceptance, speculative

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


SAMPLED = (
    ("llama", "0 1", 0.08, {"num_key_value_heads": 2}),
    ("qwen3", "1 2", 0.08, {"num_key_value_heads": 2, "head_dim": 8}),
    ("mistral", "0 2", 0.05, {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4}),
    ("gpt2", "0 2*2", 0.14, {"n_positions": 32}),
    ("opt", "(0|1) 2", 0.1, {"ffn_dim": 24, "word_embed_proj_dim": 16, "dropout": 0.0}),
)
"""Models whose samples are tested, each with its draft and the deviation of the weights of its layers, such that most
drafts are kept by whole batches; the number of a model is its seed."""
SAMPLED_VOCABULARY, TOP_K, TEMPERATURE, SAMPLED_TOKENS = 8, 4, 0.8, 5
PROMPT = (3, 7, 5)


def sampled_model(seed: int) -> Any:
    """A model of three layers with random weights."""
    kind, _, deviation, more = SAMPLED[seed]
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=SAMPLED_VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
        num_attention_heads=2, max_position_embeddings=32, bos_token_id=0, eos_token_id=None, pad_token_id=0, **more,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.normal_(std=0.5 if "embed" in name or "wte" in name or "lm_head" in name else deviation)
    return model


@torch.no_grad()
def exact(model: Any) -> Tensor:
    """The probability of every continuation of the prompt, in float64, by the model's own passes without a cache."""
    chances = torch.ones(1, dtype=torch.float64)
    texts = torch.tensor([PROMPT])
    for _ in range(SAMPLED_TOKENS):
        logits = torch.cat([model(part).logits[:, -1] for part in texts.split(1024)])
        scores = logits / TEMPERATURE
        scores = scores.masked_fill(scores < scores.topk(TOP_K).values[:, -1:], -math.inf)
        chances = (chances[:, None] * scores.double().softmax(dim=-1)).flatten()
        following = torch.arange(SAMPLED_VOCABULARY).repeat(len(texts)).unsqueeze(-1)
        texts = torch.cat([texts.repeat_interleave(SAMPLED_VOCABULARY, dim=0), following], dim=-1)
    return chances


def drawn(model: Any, draws: int, rows: int, seed: int, way: Any) -> tuple[Tensor, Counter[str]]:
    """How often each continuation was drawn, and what was counted."""
    ids = torch.tensor([PROMPT]).expand(rows, -1)
    settings = {
        "attention_mask": torch.ones_like(ids), "max_new_tokens": SAMPLED_TOKENS, "do_sample": True, "top_k": TOP_K,
        "temperature": TEMPERATURE, "pad_token_id": 0, "disable_compile": True, "custom_generate": way,
    }  # fmt: skip
    found = torch.zeros(SAMPLED_VOCABULARY**SAMPLED_TOKENS, dtype=torch.long)
    places = SAMPLED_VOCABULARY ** torch.arange(SAMPLED_TOKENS - 1, -1, -1)
    counts: Counter[str] = Counter()
    torch.manual_seed(seed)
    for _ in range(draws // rows):
        new = model.generate(ids, **settings)[:, len(PROMPT) :]
        found += torch.bincount((new * places).sum(dim=-1), minlength=len(found))
        if way is not None:
            passes = way.passes
            counts.update(drafted=passes.draft_passes, kept=passes.accepted, rounds=passes.rounds)
            counts["one round"] += passes.rounds == 1
    return found, counts


def fit(found: Tensor, chances: Tensor) -> tuple[float, int, float]:
    """Chi-square of counts against chances, its degrees of freedom and p; continuations expected fewer than 5 times
    are one cell. Infinite where a continuation of no chance was drawn.
    """
    if bool(found[chances == 0].any()):
        return math.inf, 0, 0.0
    expected = chances * float(found.sum())
    often = expected >= 5
    cells = [torch.cat([each[often], each[~often].sum()[None]]).numpy() for each in (found.double(), expected)]
    if cells[1][-1] < 5:
        cells = [cell[:-1] for cell in cells]
        cells[1] *= cells[0].sum() / cells[1].sum()
    test = chisquare(*cells)
    return float(test.statistic), len(cells[0]) - 1, float(test.pvalue)


def sampling(options: argparse.Namespace) -> None:
    """Every model with its draft, against what its logits say; `--control` puts a wrong rule in the loop."""
    if options.control:
        acceptance._residual = lambda model, draft: model
    for seed in options.models or range(len(SAMPLED)):
        kind, draft, *_ = SAMPLED[seed]
        start = time.process_time()
        model = sampled_model(seed)
        chances = exact(model)
        stack = load(model)
        adapts = len(Plan.parse(draft).steps()) < stack.depth
        way = speculative(stack, draft, tokens=3, adapts=adapts)
        found, counts = drawn(model, options.draws, options.rows, seed, way)
        statistic, degrees, p = fit(found, chances)
        print(
            f"model {seed} ({kind}), draft {draft}: {int(found.sum()):,} draws of {SAMPLED_TOKENS} tokens, chi-square "
            f"{statistic:.1f}, {degrees} degrees, p = {p:.3g}; {counts['kept']:,} of {counts['drafted']:,} drafts kept "
            f"by all {options.rows} rows, {counts['one round']:,} of {options.draws // options.rows:,} texts in one "
            f"round; {time.process_time() - start:.0f} s",
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
    parser.add_argument("--rows", type=int, default=8, help="rows of a batch of samples")
    parser.add_argument("--models", type=int, nargs="*", help="numbers of the models that are sampled; all by default")
    parser.add_argument("--control", action="store_true", help="sample by a wrong rule")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if options.sampling:
        sampling(options)
    else:
        lossless(options)


if __name__ == "__main__":
    main()
