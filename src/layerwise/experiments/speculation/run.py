"""The steps of speculative decoding: a draft is chosen, generated with, and timed, prompt after prompt.

The text has three parts: to search, to compare, and to generate from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

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
from layerwise.experiments.speculation.rows import draft_rows, prompt_rows, speculation_rows, stored_trials
from layerwise.experiments.speculation.trial import PromptTrial, Ways
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import CHOSEN, SPECULATION, SPECULATION_DRAFT, SPECULATION_PROMPT
from layerwise.search.drafts import best_first, draft_times, leaving_out
from layerwise.search.texts import divided_text
from layerwise.stack import Stack
from layerwise.stack.speculation import speculative

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
