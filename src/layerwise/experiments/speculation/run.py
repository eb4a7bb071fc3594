"""A draft chosen, generated with, and timed: one text after the other, each way in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.data.text.demo_corpus import demo_corpus
from layerwise.errors import DataError, LayerwiseError
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import describe_data, describe_model
from layerwise.experiments.speculation.config import SpeculativeDecoding
from layerwise.experiments.speculation.twin import twin
from layerwise.measure.cost.pass_time import PassClock
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.plan import Plan
from layerwise.search.drafts import DraftCandidate, best_first, draft_times, leaving_out
from layerwise.search.texts import divided_text
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.stack.rounding import HALF, rounding
from layerwise.stack.speculation import LayerPasses, Speculation, speculative

FINALISTS = 4
"""Candidates of a search that are compared on a second part of the text."""


def speculate(config: SpeculativeDecoding, reporter: Reporter) -> int:
    """Carry out `layerwise speculate`; returns the exit code."""
    stack = config.open_model(reporter)
    speculative(stack, config.draft or Plan.identity(stack.depth))  # what cannot be is refused before anything is timed
    data = tokenize(
        stack, _corpus(config), length=min(256, config.context + 64), tokens=config.agreement_tokens, seed=config.seed
    )
    reporter.result(f"{describe_model(stack)}; {describe_data(data)}")
    parts = divided_text(data, config.seed)
    times = draft_times(stack, config.context, config.tokens)
    if config.draft is None:
        reporter.log("searching the draft")
        way = leaving_out(stack, parts["search"])
        finalists = best_first(stack, way, parts["search"], times, config.tokens)[:FINALISTS]
        plans = [each.plan for each in finalists]
        (chosen, *_) = best_first(stack, plans, parts["select"], times, config.tokens)
        reporter.result(f"searched {len(way)} drafts, compared {len(plans)} of them on a second part of the text")
    else:
        (chosen,) = best_first(stack, [Plan.parse(config.draft)], parts["select"], times, config.tokens)
    reporter.result(_expected(chosen, times.rate(chosen.plan, 1.0, 0), stack.depth))
    draft = speculative(stack, chosen.plan, tokens=config.tokens)
    outcome = _generated(stack, draft, _prompts(parts["report"], config), config.new_tokens, reporter)
    reporter.result("\n".join(outcome.sentences()))
    return 1 if outcome.differing else 0


def _corpus(config: SpeculativeDecoding) -> Corpus:
    if config.text is not None:
        return read_corpus(config.text)
    if config.model == "demo":
        return demo_corpus()
    raise DataError("a text to draw prompts from is needed: --text FILE_OR_FOLDER (only demo has its own)")


def _expected(chosen: DraftCandidate, plain: float, depth: int) -> str:
    """What is known beforehand."""
    steps = len(chosen.plan.steps())
    return (
        f"draft {chosen.plan}: {steps} of {depth} layer passes, the whole model's arg-max at {chosen.agreement:.1%} of "
        f"the tokens\nexpected: drafts of {chosen.length}, {chosen.bound:.2f} x in layer passes; "
        f"{chosen.rate:.1f} tokens/s, plain decoding {plain:.1f}"
    )


def _prompts(data: EvalData, config: SpeculativeDecoding) -> list[Tensor]:
    """The beginnings of documents that chose nothing, (1, context) each."""
    windows = [window for window in data.windows if window.index == 0] or list(data.windows)
    return [torch.tensor([window.ids[: config.context]]) for window in windows[: config.prompts]]


@dataclass(frozen=True)
class DraftTrial:
    """What was generated: the count over all prompts, tokens per second of each way, and texts that differ.

    `ties` are texts whose first other token is one that the model holds as likely, up to rounding.
    """

    passes: LayerPasses
    rates: Mapping[str, float]
    texts: int
    ties: int
    differing: int
    note: str

    def sentences(self) -> list[str]:
        """The outcome, in lines."""
        passes = self.passes
        rates = [f"{rate:.1f} {name}" for name, rate in self.rates.items()]
        own = self.rates["speculative"]
        ratios = [f"{own / rate:.2f} x {name}" for name, rate in self.rates.items() if name != "speculative"]
        lines = [
            f"generated: {passes.tokens} tokens behind the first ones, in {passes.rounds} rounds with "
            f"{passes.draft_passes} draft passes, of which {passes.acceptance:.1%} were kept",
            f"layer passes: {passes.total:,}, which is {passes.rounds} x {passes.depth} + {passes.draft_passes} x "
            f"{passes.draft_steps}; {passes.bound:.2f} x fewer than plain decoding",
            f"tokens/s: {', '.join(rates)}; speculative is {', '.join(ratios)}",
        ]
        lines += [self.note] if self.note else []
        equal = self.texts - self.ties - self.differing
        return [*lines, f"equal to generate: {equal} of {self.texts} texts, {self.ties} up to a tie"]


def _generated(
    stack: Stack, draft: Speculation, prompts: Sequence[Tensor], new_tokens: int, reporter: Reporter
) -> DraftTrial:
    """Every prompt by each way, the first of them once more before anything is timed."""
    model: Any = stack.model
    ways: dict[str, dict[str, Any]] = {"generate": {}, "speculative": {"custom_generate": draft}}
    note = ""
    try:
        assistant = twin(stack, draft.draft)
        settings = {"num_assistant_tokens": draft.tokens, "num_assistant_tokens_schedule": "constant"}
        assistant.generation_config.update(**settings)
        ways["assistant"] = {"assistant_model": assistant}
    except LayerwiseError as refused:
        note = f"no assistant to compare with: {refused}"
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    passes, verdicts, written = [], [], 0
    clock = PassClock(stack.device)
    for number, prompt in enumerate([prompts[0], *prompts]):
        reporter.progress("generating", number / (len(prompts) + 1))
        ids = prompt.to(stack.device)
        texts = {}
        for name in _turned(list(ways), number):
            start = clock.mark()
            texts[name] = _text(model, ids, new_tokens, ways[name])
            seconds[name] += [clock.between(start, clock.mark())] * (number > 0)
        if number:
            passes.append(draft.passes)
            written += texts["generate"].shape[1] - ids.shape[1]
            verdicts.append(_verdict(stack, ids, texts["generate"], texts["speculative"]))
    rates = {name: written / sum(took) for name, took in seconds.items()}
    count = replace(passes[0], **{name: sum(getattr(each, name) for each in passes) for name in LayerPasses.COUNTED})
    return DraftTrial(count, rates, len(prompts), verdicts.count("tie"), verdicts.count("other"), note)


def _turned(names: list[str], number: int) -> list[str]:
    """The names, another one first each time: a machine whose pace changes disturbs all alike."""
    start = number % len(names)
    return names[start:] + names[:start]


def _text(model: Any, ids: Tensor, new_tokens: int, way: Mapping[str, Any]) -> Tensor:
    config = model.generation_config
    padding = next((i for i in (config.pad_token_id, config.eos_token_id) if isinstance(i, int)), 0)
    with evaluating(model):
        text: Tensor = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False,
            pad_token_id=padding, **way,
        )  # fmt: skip
    return text


def _verdict(stack: Stack, ids: Tensor, plain: Tensor, drafted: Tensor) -> str:
    """`equal`, `tie` where the first other token is as likely up to rounding, else `other`."""
    shortest = min(plain.shape[1], drafted.shape[1])
    unlike = (plain[0, :shortest] != drafted[0, :shortest]).nonzero()
    if not len(unlike):
        return "equal" if plain.shape == drafted.shape else "other"
    position = int(unlike[0])
    with evaluating(stack.model), torch.no_grad():
        logits = stack.model(input_ids=plain[:, :position]).logits[0, -1].float()
    gap = (logits[plain[0, position]] - logits[drafted[0, position]]).abs() / logits.norm()
    allowed = (
        torch.finfo(stack.dtype).eps if stack.dtype in HALF else rounding(stack.text_config.hidden_size, stack.depth)
    )
    return "tie" if float(gap) <= allowed else "other"
