"""Self-speculative decoding against `generate` and against transformers' own assistant, interleaved.

    python benchmarks/speculation.py planted                          # a planted identity: what the loop is worth
    python benchmarks/speculation.py model --model DIR --draft PLAN   # a trained model: acceptance and layer passes

`planted`: a 16 x 512 Llama with random weights, of which the output projections of layers 4-11 are zero, so that the
other 8 layers always agree with the whole. Each turn times `generate`, `generate` with the draft, and `generate` with
an assistant made of the same tensors, in rotating order, and the first two with fused projections, whose layout is made
before the clock starts; the figures are medians of the ratios within a turn.

`model`: greedy continuations of files of the standard library that no model here was trained on, and how many layer
passes they took, with Student's interval over prompts. With `--before` also what the model predicts worse or better
than another one on held-out text, in nats per token, by kind of text, with a paired bootstrap over documents:

    layerwise train robust draft --no-baseline --model demo --seeds 1 --epochs 12 \\
        --set draft="0 11" --set draft_weight=3
    python benchmarks/speculation.py model --model RUN/draft/seed-0/model --draft "0 11" --before demo
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from layerwise.data.demo.corpus import demo_corpus
from layerwise.data.demo.python_stdlib import documents
from layerwise.experiments.speculation.run import twin
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.measure.stats.statistics import paired_bootstrap, student_interval
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.stack.speculation import LayerPasses, Speculation, speculative

DRAFT = "0-3 12-15"


def planted_model(depth: int = 16, width: int = 512) -> LlamaForCausalLM:
    """The Llama whose middle half adds nothing."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024, hidden_size=width, intermediate_size=11 * width // 4, num_hidden_layers=depth,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=1024, initializer_range=0.05,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for block in model.model.layers[depth // 4 : 3 * depth // 4]:
            block.self_attn.o_proj.weight.zero_()
            block.mlp.down_proj.weight.zero_()
    return model


def bare_greedy(model: Any, ids: torch.Tensor, tokens: int) -> torch.Tensor:
    """Cached greedy decoding by the model's forward alone, without what `generate` adds."""
    output = model(input_ids=ids, use_cache=True, logits_to_keep=1)
    for _ in range(tokens - 1):
        token = output.logits[:, -1].argmax(dim=-1, keepdim=True)
        ids = torch.cat([ids, token], dim=-1)
        output = model(input_ids=token, past_key_values=output.past_key_values, use_cache=True, logits_to_keep=1)
    return torch.cat([ids, output.logits[:, -1].argmax(dim=-1, keepdim=True)], dim=-1)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the wall clock and of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def planted(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    model = planted_model()
    stack = load(model)
    draft = speculative(stack, DRAFT, tokens=options.tokens)
    assistant = twin(stack, Plan.parse(DRAFT))
    assistant.generation_config.update(
        num_assistant_tokens=options.tokens,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    ids = torch.randint(3, 1024, (1, 16), generator=torch.Generator().manual_seed(0))
    settings = {
        "max_new_tokens": options.new, "min_new_tokens": options.new, "do_sample": False, "pad_token_id": 0,
        "attention_mask": torch.ones_like(ids),
    }  # fmt: skip
    sides: dict[str, tuple[bool, Callable[[], Any]]] = {
        "generate": (False, lambda: model.generate(ids, **settings)),
        "speculative": (False, lambda: model.generate(ids, custom_generate=draft, **settings)),
        "assistant": (False, lambda: model.generate(ids, assistant_model=assistant, **settings)),
        "bare": (False, lambda: bare_greedy(model, ids, options.new)),
        "fused speculative": (True, lambda: model.generate(ids, custom_generate=draft, **settings)),
        "fused generate": (True, lambda: model.generate(ids, **settings)),
    }
    found: dict[str, torch.Tensor] = {}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(-1, options.turns):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            fused, work = sides[name]
            with torch.no_grad(), stack.fused_projections() if fused else nullcontext():
                if turn < 0:  # the first turn warms up
                    found[name] = work()
                else:
                    times[name].append(timed(work))
    equal = {name: bool(torch.equal(ids, found["generate"])) for name, ids in found.items()}
    report(draft, equal)
    for clock, name in enumerate(("wall clock", "processor time")):
        for mine in ("speculative", "fused speculative"):
            for other in sides:
                ratio = statistics.median(
                    turn[clock] / own[clock] for turn, own in zip(times[other], times[mine], strict=True)
                )
                share = f", {ratio / draft.passes.bound:.3f} of the bound" if other == "generate" else ""
                if other != mine:
                    print(f"{name}, {mine}: {ratio:.3f} x over {other}{share}")
    rate = {name: options.new / statistics.median(turn[0] for turn in each) for name, each in times.items()}
    print("tokens/s: " + ", ".join(f"{name} {value:.1f}" for name, value in rate.items()))


def report(draft: Speculation, equal: dict[str, bool]) -> None:
    """Print what was counted."""
    passes = draft.passes
    print(f"draft {draft.draft}, {draft.tokens} tokens at most: acceptance {passes.acceptance:.3f}")
    print(f"{passes.tokens} tokens, {passes.rounds} rounds, {passes.draft_passes} draft passes")
    print(f"layer passes {passes.total}, bound {passes.bound:.3f} x")
    print("tokens equal to those of generate: " + ", ".join(f"{name} {value}" for name, value in equal.items()))


def trained(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    stack = load(options.model)
    model: Any = stack.model
    tokenizer: Any = stack.tokenizer
    texts = [each.text for each in documents("heldout", "code")[: options.prompts]]
    settings = {"max_new_tokens": options.new, "do_sample": False, "pad_token_id": 0}
    if options.before:
        compare(stack, options.before)
    for plan in options.draft:
        draft = speculative(stack, plan, tokens=options.tokens)
        counts, equal = [], 0
        seconds = {"generate": 0.0, "speculative": 0.0}
        for text in texts:
            ids = tokenizer(text, return_tensors="pt")["input_ids"][:, : options.context]
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **settings}
            start = time.process_time()
            plain = model.generate(**inputs)
            between = time.process_time()
            found = model.generate(**inputs, custom_generate=draft)
            seconds["generate"] += between - start
            seconds["speculative"] += time.process_time() - between
            equal += bool(torch.equal(plain, found))
            counts.append(draft.passes)
        total = summed(counts)
        print(f"draft {plan}: acceptance {total.acceptance:.3f}, bound {total.bound:.3f} x in layer passes,", end=" ")
        steps, passes = ([count.tokens * count.depth for count in counts], [count.total for count in counts])
        interval = student_interval(np.array(steps, dtype=float), np.array(passes, dtype=float))
        print(f"95 % interval over prompts {interval.low.item():.3f} to {interval.high.item():.3f},", end=" ")
        ratio = seconds["generate"] / seconds["speculative"]
        print(f"{ratio:.3f} x in processor time over generate; equal {equal} of {len(texts)} texts")


def compare(stack: Stack, before: str) -> None:
    """Print nats per token of the model above those of the model `before`, on held-out text, by kind of text."""
    other = load(before)
    data = tokenize(stack, demo_corpus(texts=1000), length=256)
    own, theirs, tokens = losses(stack, data), losses(other, data), Counter[tuple[str, str]]()
    for window in data.windows:
        tokens[window.task, window.document] += window.scored_until - window.scored_from
    for task in sorted({task for task, _ in tokens}):
        documents = [key for key in tokens if key[0] == task]
        apart = np.array([[own[key] - theirs[key] for key in documents]])
        count = np.array([float(tokens[key]) for key in documents])
        found = paired_bootstrap(apart, count, seed=0)
        print(
            f"nats per token above {before}, {task}, {len(documents)} documents: {found.value.item():+.4f} "
            f"[{found.low.item():+.4f}, {found.high.item():+.4f}]"
        )


@torch.no_grad()
def losses(stack: Stack, data: EvalData) -> Counter[tuple[str, str]]:
    """Summed nats of every document, window by window."""
    found: Counter[tuple[str, str]] = Counter()
    model: Any = stack.model
    for window in data.windows:
        ids = torch.tensor([window.ids])
        logits = model(ids).logits[0, window.scored_from - 1 : window.scored_until - 1]
        wanted = ids[0, window.scored_from : window.scored_until]
        found[window.task, window.document] += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
    return found


def summed(counts: list[LayerPasses]) -> LayerPasses:
    """The count of several generations together."""
    sums = {
        name: sum(getattr(each, name) for each in counts) for name in ("tokens", "rounds", "draft_passes", "accepted")
    }
    return LayerPasses(counts[0].depth, counts[0].draft_steps, **sums)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("planted", "model"))
    parser.add_argument("--tokens", type=int, default=4, help="longest draft")
    parser.add_argument("--new", type=int, default=61, help="tokens to generate")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--draft", action="append", default=[])
    parser.add_argument("--before", help="model that the quality of --model is compared with")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--context", type=int, default=64)
    options = parser.parse_args()
    planted(options) if options.what == "planted" else trained(options)


if __name__ == "__main__":
    main()
