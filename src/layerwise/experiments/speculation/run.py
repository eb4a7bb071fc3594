"""Speculative decoding that is ready to run: the draft is chosen, generated with, and timed, prompt after prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from layerwise.data.text.corpus import Corpus
from layerwise.errors import MeasureError
from layerwise.experiments.experiment import Prepared
from layerwise.experiments.provenance import hardware, provenance
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import describe_data, describe_model
from layerwise.experiments.speculation.config import SpeculativeDecoding
from layerwise.experiments.speculation.rows import draft_rows, prompt_rows, speculation_rows, stored_trials
from layerwise.experiments.speculation.trial import PromptTrial, Ways
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.vocabulary import CHOSEN, SPECULATION, SPECULATION_DRAFT, SPECULATION_PROMPT
from layerwise.search.drafts import best_first, draft_times, leaving_out
from layerwise.search.texts import divided_text
from layerwise.stack import Stack
from layerwise.stack.speculation import speculative

FINALISTS = 4
"""Candidates of a search that are compared on a second part of the text."""


class PreparedSpeculation(Prepared):
    """A model that can draft, and its text in three parts: to search, to compare, and to generate from.

    Raises `UnsupportedModel` for a model that cannot decode speculatively, and `PlanError` for a draft that it cannot
    run.
    """

    def __init__(self, config: SpeculativeDecoding, stack: Stack, corpus: Corpus) -> None:
        self.config = config
        self.stack = stack
        speculative(stack, config.draft or Plan.identity(stack.depth))
        length = min(256, config.context + 64)
        self.data = tokenize(stack, corpus, length=length, tokens=config.agreement_tokens, seed=config.seed)
        self.parts = divided_text(self.data, config.seed)
        self.prompts = _prompts(self.parts["report"], config)
        machine = hardware(stack.device)
        self.manifest = provenance(
            stack, self.data,
            families=(
                SPECULATION, config.draft or "search", f"tokens:{config.tokens}", f"context:{config.context}",
                f"new:{config.new_tokens}",
            ),
            seed=config.seed, settings={"machine": machine.get("accelerator", machine["processor"])},
        )  # fmt: skip

    def describe(self) -> Iterator[str]:
        """The model, the text, and how much is generated."""
        yield f"{describe_model(self.stack)}; {describe_data(self.data)}"
        draft = "a draft that is searched" if self.config.draft is None else f"the draft {self.config.draft}"
        yield f"{len(self.prompts)} prompts, {self.config.new_tokens} tokens behind each, with {draft} and without"

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Choose the draft and continue the prompts that are missing. Raises `MeasureError` for a text that differs."""
        draft = self._chosen(run, reporter)
        trials = stored_trials(run.store.scores(SPECULATION_PROMPT), self.stack.depth, draft)
        if len(trials) < len(self.prompts):
            ways = Ways(speculative(self.stack, draft, tokens=self.config.tokens), self.config.new_tokens)
            run.store.replace_notes(SPECULATION, [ways.note] if ways.note else [])
            ways.trial(self.prompts[0], 0)  # nothing is timed the first time
            for number in range(len(trials), len(self.prompts)):
                trials.append(ways.trial(self.prompts[number], number))
                run.store.replace_scores(SPECULATION_PROMPT, prompt_rows(trials))
                reporter.progress("generating", (number + 1) / len(self.prompts))
        run.store.replace_scores(SPECULATION, speculation_rows(draft, trials))
        _refuse_others(trials)

    def _chosen(self, run: Run, reporter: Reporter) -> Plan:
        """The draft: the one that is stored, or that was given, or the best of a search; what is expected is stored."""
        for row in run.store.scores(SPECULATION_DRAFT, metric=CHOSEN):
            return Plan.parse(str(row.plan))
        config, stack = self.config, self.stack
        times = draft_times(stack, config.context, config.tokens)
        plans = [] if config.draft is None else [Plan.parse(config.draft)]
        if not plans:
            reporter.log("searching the draft")
            way = leaving_out(stack, self.parts["search"])
            best = best_first(stack, way, self.parts["search"], times, config.tokens)
            plans = [each.plan for each in best[:FINALISTS]]
            reporter.log(f"{len(way)} drafts searched; {len(plans)} of them are compared on a second part of the text")
        finalists = best_first(stack, plans, self.parts["select"], times, config.tokens)
        chosen = finalists[0].plan
        run.store.replace_scores(SPECULATION_DRAFT, draft_rows(finalists, chosen, times.rate(chosen, 1.0, 0)))
        return chosen


def _prompts(data: EvalData, config: SpeculativeDecoding) -> list[Tensor]:
    """The beginnings of documents that chose nothing, (1, context) each."""
    windows = [window for window in data.windows if window.index == 0] or list(data.windows)
    return [torch.tensor([window.ids[: config.context]]) for window in windows[: config.prompts]]


def _refuse_others(trials: Sequence[PromptTrial]) -> None:
    others = [number for number, trial in enumerate(trials) if trial.verdict == "other"]
    if others:
        raise MeasureError(
            f"{len(others)} of {len(trials)} texts differ from those of plain generation by more than a tie, the first "
            f"of prompt {others[0]}: do not decode this model with drafts, and tell the authors of layerwise"
        )
