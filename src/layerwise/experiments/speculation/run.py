"""The steps of speculative decoding: a draft is chosen, generated with, and timed, prompt after prompt.

The text has three parts: to search, to compare, and to generate from.

Rows:

speculation_draft    of every candidate that was compared (`plan`): `agreement` with the whole model's arg-max, the
                     `length` that promises most, the speed-up in layer passes (`bound`) and the `tokens_per_second`
                     that are expected of it; `chosen` is the one that was generated with. Without a plan, of condition
                     `generate`: what is expected of plain decoding
speculation_prompt   of each prompt (`seed` is its number): `seconds` of each way of decoding (`condition`), and what
                     was counted
speculation          of the draft over all prompts: `bound`, `acceptance` and counts; tokens per second of each way
                     (`condition`), and `ratio`, its seconds over those with the draft. Intervals are Student's over
                     prompts
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerwise.checkpoint.write import assembled
from layerwise.errors import LayerwiseError, MeasureError, UnsupportedModel
from layerwise.experiments.engines.call import CallUnit, RoundsUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.opening import first_windows, hardware, open_named, provenance
from layerwise.experiments.reporter import Reporter, describe_data, describe_model, waiting
from layerwise.experiments.timing.config import SpeculativeDecoding
from layerwise.measure.cost.pass_time import PassClock
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.measure.stats.statistics import student_interval
from layerwise.plan import Plan
from layerwise.results import Rows, Score
from layerwise.results import vocabulary as vocab
from layerwise.search.drafts import DraftCandidate, best_first, draft_times, leaving_out
from layerwise.search.rungs import divided_text
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.stack.rounding import HALF, rounding
from layerwise.stack.speculation import LayerPasses, Speculation, speculative

ASSISTED = "assistant"


@dataclass(frozen=True, slots=True)
class PromptTrial:
    """What one prompt gave: `seconds` by the way of decoding, the layer passes, and the new tokens of each text.

    `verdict` is `equal`, `tie` where the first other token is one that the model holds as likely, up to rounding, or
    `other`.
    """

    seconds: Mapping[str, float]
    passes: LayerPasses
    written: int
    verdict: str


class Ways:
    """The ways in which a prompt is continued: plainly, with the draft, and with an assistant that has its tensors.

    `note` says why there is no assistant, where there is none.
    """

    def __init__(self, draft: Speculation, new_tokens: int) -> None:
        self.draft = draft
        self.new_tokens = new_tokens
        self.options: dict[str, dict[str, Any]] = {vocab.PLAIN: {}, vocab.DRAFTED: {"custom_generate": draft}}
        self.note = ""
        try:
            assistant = twin(draft.stack, draft.draft)
        except LayerwiseError as refused:
            self.note = f"no assistant to compare with: {refused}"
            return
        assistant.generation_config.update(
            num_assistant_tokens=draft.tokens, num_assistant_tokens_schedule="constant"
        )  # fmt: skip
        self.options[ASSISTED] = {"assistant_model": assistant}

    def trial(self, prompt: Tensor, number: int) -> PromptTrial:
        """Continue a prompt (1, length) greedily by every way, which of them first depending on its `number`."""
        stack = self.draft.stack
        ids = prompt.to(stack.device)
        clock = PassClock(stack.device)
        names, texts, seconds = list(self.options), {}, {}
        start = number % len(names)
        for name in names[start:] + names[:start]:
            begun = clock.mark()
            texts[name] = self._text(ids, self.options[name])
            seconds[name] = clock.between(begun, clock.mark())
        written = texts[vocab.PLAIN].shape[1] - ids.shape[1]
        return PromptTrial(
            seconds, self.draft.passes, written, verdict(stack, ids, texts[vocab.PLAIN], texts[vocab.DRAFTED])
        )

    def _text(self, ids: Tensor, way: Mapping[str, Any]) -> Tensor:
        model: Any = self.draft.stack.model
        config = model.generation_config
        padding = next((i for i in (config.pad_token_id, config.eos_token_id) if isinstance(i, int)), 0)
        with evaluating(model):
            text: Tensor = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=self.new_tokens, do_sample=False,
                pad_token_id=padding, **way,
            )  # fmt: skip
        return text


def verdict(stack: Stack, ids: Tensor, plain: Tensor, drafted: Tensor) -> str:
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


def twin(stack: Stack, plan: Plan) -> Any:
    """A model of the plan beside that of `stack`, for `generate(assistant_model=...)`; no weight is copied.

    Raises `UnsupportedModel` for plans that no model of its own can hold: groups, halves, and layers that repeat.
    """
    steps = plan.steps()
    if len({step.layer for step in steps}) < len(steps) or any(step.sublayer or step.opens for step in steps):
        raise UnsupportedModel(f"an assistant is a model of its own, and {plan} is more than a row of distinct layers")
    made: Any = assembled(stack, plan)
    made.generation_config = type(made.generation_config).from_dict(made.generation_config.to_dict())
    own = dict(stack.model.named_buffers())
    prefix = f"{stack.path}."
    for name, buffer in list(made.named_buffers()):
        if buffer.device.type != "meta":
            continue
        source = name
        if name.startswith(prefix):
            slot, _, rest = name.removeprefix(prefix).partition(".")
            source = f"{prefix}{steps[int(slot)].layer}.{rest}"
        module, _, last = name.rpartition(".")
        made.get_submodule(module)._buffers[last] = own[source]
    if any(tensor.device == torch.device("meta") for tensor in (*made.parameters(), *made.buffers())):
        raise UnsupportedModel(f"{type(made).__name__} has tensors that its state dictionary does not name")
    return made


FINALISTS = 4
"""Candidates of a search that are compared on a second part of the text."""


def speculation(config: SpeculativeDecoding, reporter: Reporter, inputs: Inputs) -> Steps:
    """Choose the draft, continue every prompt with it and without, and add up what that gains.

    Raises `UnsupportedModel` for a model that cannot decode speculatively, `PlanError` for a draft that it cannot run,
    and `MeasureError` for a text that differs from that of plain generation.
    """
    stack, corpus = inputs.stack or open_named(config, reporter), inputs.corpus or config.corpus()
    with waiting(reporter, f"tokenizing {corpus.name}"):
        speculative(stack, config.draft or Plan.identity(stack.depth))
        length = min(256, config.context + 64)
        data = tokenize(stack, corpus, length=length, tokens=config.agreement_tokens, seed=config.seed)
        parts = divided_text(data, config.seed)
    prompts = first_windows(parts["report"], config.prompts, config.context)
    machine = hardware(stack.device)
    manifest = provenance(
        stack, data,
        families=(
            vocab.SPECULATION, config.draft or "search", f"tokens:{config.tokens}", f"context:{config.context}",
            f"new:{config.new_tokens}",
        ),
        seed=config.seed, settings={"machine": machine.get("accelerator", machine["processor"])},
    )  # fmt: skip

    def says() -> Iterator[str]:
        yield f"{describe_model(stack)}; {describe_data(data)}"
        draft = "a draft that is searched" if config.draft is None else f"the draft {config.draft}"
        yield f"{len(prompts)} prompts, {config.new_tokens} tokens behind each, with {draft} and without"

    session = yield Outline(manifest, says)
    chosen = yield from CallUnit(vocab.SPECULATION_DRAFT, lambda: _drafts(config, stack, parts, reporter))
    draft = Plan.parse(next(str(row.plan) for row in chosen if row.metric == vocab.CHOSEN))

    def begin() -> Callable[[int], list[Score]]:
        ways = Ways(speculative(stack, draft, tokens=config.tokens), config.new_tokens)
        session.store.replace_notes(vocab.SPECULATION, [ways.note] if ways.note else [])
        ways.trial(prompts[0], 0)  # nothing is timed the first time
        return lambda number: prompt_rows([ways.trial(prompts[number], number)], number)

    numbers = range(len(prompts))
    trialled = yield from RoundsUnit(vocab.SPECULATION_PROMPT, numbers, _number, begin, lambda _: "generating")
    trials = stored_trials([row for rows in trialled.values() for row in rows], stack.depth, draft)
    return Completed(speculation_rows(draft, trials), refusal=_refusal(trials))


def _number(row: Score) -> int:
    """The number of the prompt that a row is of."""
    assert row.seed is not None, "every row of a prompt has its number"
    return row.seed


def _drafts(
    config: SpeculativeDecoding, stack: Stack, parts: Mapping[str, EvalData], reporter: Reporter
) -> list[Score]:
    """What is expected of the draft that was given, or of the best of a search; the best of all is marked."""
    times = draft_times(stack, config.context, config.tokens)
    plans = [] if config.draft is None else [Plan.parse(config.draft)]
    if not plans:
        reporter.log("searching the draft")
        way = leaving_out(stack, parts["search"])
        best = best_first(stack, way, parts["search"], times, config.tokens)
        plans = [each.plan for each in best[:FINALISTS]]
        reporter.log(f"{len(way)} drafts searched; {len(plans)} of them are compared on a second part of the text")
    finalists = best_first(stack, plans, parts["select"], times, config.tokens)
    chosen = finalists[0].plan
    return draft_rows(finalists, chosen, times.rate(chosen, 1.0, 0))


def _refusal(trials: Sequence[PromptTrial]) -> MeasureError | None:
    others = [number for number, trial in enumerate(trials) if trial.verdict == "other"]
    if not others:
        return None
    return MeasureError(
        f"{len(others)} of {len(trials)} texts differ from those of plain generation by more than a tie, the first of "
        f"prompt {others[0]}: do not decode this model with drafts, and tell the authors of layerwise"
    )


VERDICTS = ("equal", "tie", "other")


def draft_rows(candidates: Iterable[DraftCandidate], chosen: Plan, plain_rate: float) -> list[Score]:
    """What is expected of every draft, and which was chosen."""
    rows = [Score(vocab.SPECULATION_DRAFT, vocab.TOKENS_PER_SECOND, plain_rate, condition=vocab.PLAIN)]
    for each in candidates:
        figures = {
            "agreement": each.agreement, "length": each.length, "bound": each.bound, vocab.TOKENS_PER_SECOND: each.rate,
        }  # fmt: skip
        rows += [
            Score(vocab.SPECULATION_DRAFT, name, float(value), plan=str(each.plan)) for name, value in figures.items()
        ]
    return [*rows, Score(vocab.SPECULATION_DRAFT, vocab.CHOSEN, 1.0, plan=str(chosen))]


def prompt_rows(trials: Sequence[PromptTrial], first: int = 0) -> list[Score]:
    """What every prompt gave, counted from the number of the `first`."""
    rows = []
    for number, trial in enumerate(trials, start=first):
        counts = {name: getattr(trial.passes, name) for name in LayerPasses.COUNTED}
        counts |= {"written": trial.written, **{each: trial.verdict == each for each in VERDICTS}}
        own = [("seconds", way, value) for way, value in trial.seconds.items()]
        own += [(name, vocab.DRAFTED, float(value)) for name, value in counts.items()]
        rows += [Score(vocab.SPECULATION_PROMPT, name, value, seed=number, condition=way) for name, way, value in own]
    return rows


def stored_trials(rows: Iterable[Score], depth: int, draft: Plan) -> list[PromptTrial]:
    """The prompts that `prompt_rows` wrote, the first one first."""
    trials = []
    for _, prompt in sorted(Rows(rows).by("seed").items()):
        seconds = {way: row.value for way, row in prompt.where(metric="seconds").along("condition").items()}
        counted = {name: int(row.value) for name, row in prompt.where(condition=vocab.DRAFTED).along("metric").items()}
        passes = LayerPasses(depth, len(draft.steps()), **{name: counted[name] for name in LayerPasses.COUNTED})
        verdict = next(each for each in VERDICTS if counted[each])
        trials.append(PromptTrial(seconds, passes, counted["written"], verdict))
    return trials


def speculation_rows(draft: Plan, trials: Sequence[PromptTrial]) -> list[Score]:
    """The figures of a draft over all prompts."""
    own: dict[str, Any] = {"plan": str(draft)}
    counted = {each: [getattr(trial.passes, each) for trial in trials] for each in LayerPasses.COUNTED}
    totals = [trial.passes.total for trial in trials]
    plain = [trial.passes.tokens * trial.passes.depth for trial in trials]
    sums = {each: sum(values) for each, values in counted.items()}
    sums |= {"layer_passes": sum(totals), **{each: sum(t.verdict == each for t in trials) for each in VERDICTS}}
    rows = [
        *_ratio("bound", plain, totals, **own),
        *map(_share, _ratio("acceptance", counted["accepted"], counted["draft_passes"], **own)),
        *(Score(vocab.SPECULATION, name, float(value), **own) for name, value in sums.items()),
    ]
    seconds: Mapping[str, list[float]] = {way: [trial.seconds[way] for trial in trials] for way in trials[0].seconds}
    written = [trial.written for trial in trials]
    for way, took in seconds.items():
        rows += _ratio(vocab.TOKENS_PER_SECOND, written, took, condition=way, **own)
        if way != vocab.DRAFTED:
            rows += _ratio("ratio", took, seconds[vocab.DRAFTED], condition=way, **own)
    return rows


def _share(score: Score) -> Score:
    """The row of a share of one, whose interval ends at 0 and at 1."""
    if score.low is None or score.high is None:
        return score
    return replace(score, low=max(0.0, score.low), high=min(1.0, score.high))


def _ratio(metric: str, above: Sequence[float], below: Sequence[float], **columns: Any) -> Iterator[Score]:
    """A ratio of sums over the prompts that have something `below`, with an interval where several have; else none."""
    having = np.asarray(below) > 0
    over, under = (np.asarray(values, dtype=np.float64)[having] for values in (above, below))
    if not under.size:
        return
    row = Score(vocab.SPECULATION, metric, float(over.sum() / under.sum()), documents=under.size, **columns)
    if under.size < 2:
        yield row
        return
    estimate = student_interval(over, under)
    yield replace(row, low=float(estimate.low[0]), high=float(estimate.high[0]))
