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
from dataclasses import replace
from typing import Any

import numpy as np

from layerwise.errors import MeasureError
from layerwise.experiments.engines.call import CallUnit
from layerwise.experiments.engines.rounds import RoundsUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.opening import first_windows, open_named
from layerwise.experiments.provenance import hardware, provenance
from layerwise.experiments.reporter import Reporter, waiting
from layerwise.experiments.sentences import describe_data, describe_model
from layerwise.experiments.speculation.config import SpeculativeDecoding
from layerwise.experiments.speculation.trial import PromptTrial, Ways
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.measure.stats.statistics import student_interval
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import (
    CHOSEN,
    DRAFTED,
    PLAIN,
    SPECULATION,
    SPECULATION_DRAFT,
    SPECULATION_PROMPT,
    TOKENS_PER_SECOND,
)
from layerwise.search.drafts import DraftCandidate, best_first, draft_times, leaving_out
from layerwise.search.texts import divided_text
from layerwise.stack import Stack
from layerwise.stack.speculation import LayerPasses, speculative

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
            SPECULATION, config.draft or "search", f"tokens:{config.tokens}", f"context:{config.context}",
            f"new:{config.new_tokens}",
        ),
        seed=config.seed, settings={"machine": machine.get("accelerator", machine["processor"])},
    )  # fmt: skip

    def says() -> Iterator[str]:
        yield f"{describe_model(stack)}; {describe_data(data)}"
        draft = "a draft that is searched" if config.draft is None else f"the draft {config.draft}"
        yield f"{len(prompts)} prompts, {config.new_tokens} tokens behind each, with {draft} and without"

    session = yield Outline(manifest, says)
    chosen = yield from CallUnit(SPECULATION_DRAFT, lambda: _drafts(config, stack, parts, reporter))
    draft = Plan.parse(next(str(row.plan) for row in chosen if row.metric == CHOSEN))

    def begin() -> Callable[[int], list[Score]]:
        ways = Ways(speculative(stack, draft, tokens=config.tokens), config.new_tokens)
        session.store.replace_notes(SPECULATION, [ways.note] if ways.note else [])
        ways.trial(prompts[0], 0)  # nothing is timed the first time
        return lambda number: prompt_rows([ways.trial(prompts[number], number)], number)

    numbers = range(len(prompts))
    trialled = yield from RoundsUnit(SPECULATION_PROMPT, numbers, _number, begin, lambda _: "generating")
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
    rows = [Score(SPECULATION_DRAFT, TOKENS_PER_SECOND, plain_rate, condition=PLAIN)]
    for each in candidates:
        figures = {
            "agreement": each.agreement, "length": each.length, "bound": each.bound, TOKENS_PER_SECOND: each.rate,
        }  # fmt: skip
        rows += [Score(SPECULATION_DRAFT, name, float(value), plan=str(each.plan)) for name, value in figures.items()]
    return [*rows, Score(SPECULATION_DRAFT, CHOSEN, 1.0, plan=str(chosen))]


def prompt_rows(trials: Sequence[PromptTrial], first: int = 0) -> list[Score]:
    """What every prompt gave, counted from the number of the `first`."""
    rows = []
    for number, trial in enumerate(trials, start=first):
        counts = {name: getattr(trial.passes, name) for name in LayerPasses.COUNTED}
        counts |= {"written": trial.written, **{each: trial.verdict == each for each in VERDICTS}}
        own = [("seconds", way, value) for way, value in trial.seconds.items()]
        own += [(name, DRAFTED, float(value)) for name, value in counts.items()]
        rows += [Score(SPECULATION_PROMPT, name, value, seed=number, condition=way) for name, way, value in own]
    return rows


def stored_trials(rows: Iterable[Score], depth: int, draft: Plan) -> list[PromptTrial]:
    """The prompts that `prompt_rows` wrote, the first one first."""
    trials = []
    for _, prompt in sorted(Rows(rows).by("seed").items()):
        seconds = {way: row.value for way, row in prompt.where(metric="seconds").along("condition").items()}
        counted = {name: int(row.value) for name, row in prompt.where(condition=DRAFTED).along("metric").items()}
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
        *(Score(SPECULATION, name, float(value), **own) for name, value in sums.items()),
    ]
    seconds: Mapping[str, list[float]] = {way: [trial.seconds[way] for trial in trials] for way in trials[0].seconds}
    written = [trial.written for trial in trials]
    for way, took in seconds.items():
        rows += _ratio(TOKENS_PER_SECOND, written, took, condition=way, **own)
        if way != DRAFTED:
            rows += _ratio("ratio", took, seconds[DRAFTED], condition=way, **own)
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
    row = Score(SPECULATION, metric, float(over.sum() / under.sum()), documents=under.size, **columns)
    if under.size < 2:
        yield row
        return
    estimate = student_interval(over, under)
    yield replace(row, low=float(estimate.low[0]), high=float(estimate.high[0]))
