"""A frontier that is ready to run: the models open, the text divided, and the plans that are tried known.

Plans are chosen on one part of the text, and everything is measured on the other. Losses are stored as they are
computed and rounds as they are timed; the choice is a function of losses, and the draft, which depends on times too, is
stored when it is chosen. So a run that was killed goes on with the same plans.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from layerwise.data.text.corpus import Corpus
from layerwise.errors import LayerwiseError, PlanError, UnsupportedModel
from layerwise.experiments.experiment import Prepared
from layerwise.experiments.forecast.work import Work, WorkCost, is_short
from layerwise.experiments.frontier.config import LatencyFrontier
from layerwise.experiments.frontier.healed import HEALED, documents_of, given_models, healed_here, opened, plans_to_heal
from layerwise.experiments.frontier.rows import ArmPoint, point_rows
from layerwise.experiments.options.text import BATCH_TOKENS
from layerwise.experiments.provenance import provenance, size_row
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import describe_data, describe_model
from layerwise.experiments.sweep.works import typical_batch
from layerwise.experiments.timing.rounds import measured_rounds, stored_rounds
from layerwise.experiments.timing.run import rounds_works, timed_settings, timing_settings
from layerwise.measure.cost.drafted_time import generation_ratio
from layerwise.measure.cost.latency_verdict import LatencyPoint, verdict_rows
from layerwise.measure.cost.pass_time import RoundTimes, Setting, TimedPlan, round_times, rows_of_rounds
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import CHOOSE, FRONTIER, FRONTIER_DRAFT, IDENTITY, PARALLEL, REPORT, TIME
from layerwise.search.cost import Spent
from layerwise.search.drafts import best_first, draft_times, leaving_out
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.latency_arms import ArmPlan, candidates, least, skip_sets, skip_sizes
from layerwise.search.rungs import mean_losses
from layerwise.search.texts import by_document, divided_text
from layerwise.stack import Stack, weight_hash
from layerwise.stack.checks.checkpoint_files import numbers_of
from layerwise.stack.speculation import Speculation, speculative

SHARES: Mapping[str, float] = {CHOOSE: 0.4, REPORT: 0.6}
"""The part of the text that chooses plans, and the part that says what they lose."""

LEAST_DEPTH = 4
PROMPTS = 8
"""Beginnings of documents that drafts are timed on, in turns."""


@dataclass(frozen=True)
class Contenders:
    """What is measured: the plans that were chosen, the draft, and the healed models by name."""

    kept: Sequence[ArmPlan]
    draft: Speculation | None
    healed: Mapping[str, Stack]
    unfused: Mapping[Plan, str]
    """Plans with groups that cannot run as one, with the reason."""

    def points(self, whole: Plan) -> list[ArmPoint]:
        """Everything that is timed, the model as trained first."""
        points = [
            ArmPoint(LatencyPoint(str(TimedPlan(whole, fused)), IDENTITY, str(whole)), "as trained", 0)
            for fused in (False, True)
        ]
        for each in self.kept:
            for timed in self._ways(each):
                point = LatencyPoint(str(timed), each.arm, str(each.plan))
                points.append(ArmPoint(point, each.kind, each.size, timed.fused))
        if self.draft is not None:
            skipped = len(whole.steps()) - len(self.draft.draft.steps())
            point = LatencyPoint(draft_name(self.draft), "speculation", str(whole))
            points.append(ArmPoint(point, "draft", skipped))
        points += [
            ArmPoint(LatencyPoint(name, HEALED, name), "checkpoint", len(whole.steps()) - healed.depth)
            for name, healed in self.healed.items()
        ]
        return points

    def timed(self, whole: Plan) -> list[TimedPlan]:
        """What is timed by its passes: all but the draft."""
        plans = [TimedPlan(whole), TimedPlan(whole, fused=True)]
        plans += [timed for each in self.kept for timed in self._ways(each)]
        healed = self.healed.items()
        return [*plans, *(TimedPlan(Plan.identity(stack.depth), fused=True, model=name) for name, stack in healed)]

    def _ways(self, plan: ArmPlan) -> list[TimedPlan]:
        """How a plan is timed: fused, so that all arms have what fusing gives, and a parallel plan in turn as well."""
        fused = [] if plan.plan in self.unfused else [TimedPlan(plan.plan, fused=True)]
        return [TimedPlan(plan.plan), *fused] if plan.arm == PARALLEL else fused


class PreparedFrontier(Prepared):
    """A model, the text in two parts, and what is timed.

    Raises `DataError` for too little text, and `PlanError` for fewer than 4 layers.
    """

    def __init__(self, config: LatencyFrontier, stack: Stack, corpus: Corpus, reporter: Reporter) -> None:
        self.config = config
        self.stack = stack
        self.corpus = corpus
        if stack.depth < LEAST_DEPTH:
            raise PlanError(
                f"{stack.source.name} has {stack.depth} layers, and a frontier needs {LEAST_DEPTH}: what it compares "
                "are ways of leaving some out and of joining others"
            )
        self.whole = Plan.identity(stack.depth)
        self.tried = list(candidates(stack.depth, config.sizes))
        for each in self.tried:
            stack.check(each.plan)
        self.text = tokenize(
            stack, corpus, length=config.max_length, tokens=config.tokens,
            batch_tokens=config.batch_tokens or BATCH_TOKENS, seed=config.seed,
        )  # fmt: skip
        self.parts = divided_text(self.text, config.seed, SHARES)
        self.healed, self.healed_on = given_models(config, stack)
        self.settings = timed_settings(stack, config.batch, config.context)
        self.manifest = provenance(
            stack, self.text, families=self._families(), tasks=tuple(map(str, self.settings)), seed=config.seed,
            settings={
                "batch_tokens": config.batch_tokens or BATCH_TOKENS, **timing_settings(stack, config.graphs)
            },
        )  # fmt: skip
        self.notes: list[str] = []

    def _families(self) -> tuple[str, ...]:
        config = self.config
        options = {name: getattr(config, name) for name in ("sizes", "draft_tokens", "new_tokens", "heal_steps")}
        own = [f"{name}:{value}" for name, value in options.items() if value is not None]
        healed = [f"{name}:{weight_hash(stack.model)[:16]}" for name, stack in self.healed.items()]
        return (FRONTIER, *own, *healed)

    def describe(self) -> Iterator[str]:
        """The model, the text and its parts, how many plans are tried, and how they are timed."""
        yield describe_model(self.stack)
        yield describe_data(self.text)
        what = "document" if by_document(self.text) else "window"
        parts = ", ".join(f"{name} {part.tokens:,}" for name, part in self.parts.items())
        yield f"texts, disjoint by {what}, in scored tokens: {parts}"
        arms = {arm: sum(each.arm == arm for each in self.tried) for arm in dict.fromkeys(e.arm for e in self.tried)}
        counted = ", ".join(f"{count} of {arm}" for arm, count in arms.items())
        yield f"plans to choose from: {counted}; of each kind and size the best is measured on the other part"
        yield f"{self.config.rounds} rounds of everything in turns: {'; '.join(map(str, self.settings))}"
        if self.config.heal_steps is not None:
            yield f"plans of three sizes are healed on the part that chooses, {self.config.heal_steps:,} steps each"

    def discard(self, folder: Path) -> None:
        """Remove the models that were healed in this run."""
        shutil.rmtree(folder / HEALED, ignore_errors=True)

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The losses of all plans, and the rounds; healing is a training of its own, and is not counted."""
        plans = list(dict.fromkeys([self.whole, *(each.plan for each in self.tried)]))
        kept = {(each.arm, each.kind, each.size): each for each in self.tried}.values()
        tokens = sum(batch.size for batch in self.parts[CHOOSE].batches)
        operations = 2.0 * numbers_of(self.stack.model) * tokens * len(plans)
        calls = len(plans) * len(self.parts[CHOOSE].batches)
        if (run is None or run.store.count_losses() == 0) and not is_short(operations, calls):
            yield Work("losses", partial(self._losses_cost, plans, len(kept)))
        left = self.config.rounds - (0 if run is None else len(stored_rounds(run, self.settings)))
        timed = Contenders(list(kept), None, self.healed, {}).timed(self.whole)
        yield from rounds_works({"": self.stack, **self.healed}, timed, self.settings, left, graphs=self.config.graphs)

    def _losses_cost(self, plans: Sequence[Plan], kept: int, seconds: float) -> WorkCost:
        """Some of the plans on the typical batch, once the model has warmed up, as a share of all that is computed on
        both parts.

        The plans that removals lead to, and the drafts, are as many again as depth squared.
        """
        part = self.parts[CHOOSE]
        smallest = replace(part, batches=(min(part.batches, key=lambda batch: batch.size),))
        typical = replace(part, batches=(typical_batch(part),))
        some = plans[:: max(1, len(plans) // 12)]
        GraphEvaluator(self.stack, [smallest]).evaluate([self.whole], 0, self.whole)
        evaluator = GraphEvaluator(self.stack, [typical])
        evaluator.evaluate(some, 0, self.whole)
        tokens = typical.batches[0].size
        removals = self.stack.depth**2
        work = (len(plans) + removals) * sum(batch.size for batch in part.batches)
        work += kept * sum(batch.size for batch in self.parts[REPORT].batches)
        on = f"{len(some)} of {len(plans):,} plans, on 1 of {len(part.batches):,} batches"
        return WorkCost(evaluator.spent.seconds * work / (len(some) * tokens), measured_on=on)

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Choose, measure on fresh text, time, and judge; what is stored is not computed again."""
        if run.store.scores(FRONTIER) and len(stored_rounds(run, self.settings)) >= self.config.rounds:
            return
        known = list(run.store.losses())
        contenders, chosen_on = self._contenders(run, known, reporter)
        points = contenders.points(self.whole)
        losses = self._fresh(run, known, contenders, reporter)
        rounds = measured_rounds(
            run, self.settings, self.config.rounds, self._once(contenders),
            lambda share: reporter.progress("rounds", share),
        )  # fmt: skip
        rows = point_rows(points, losses, chosen_on, str(self.whole), seed=self.config.seed)
        rows += verdict_rows(
            [each.point for each in points], losses, chosen_on, rounds, self.settings, seed=self.config.seed
        )
        run.store.replace_scores(TIME, rows_of_rounds([each.point.name for each in points], self.settings, rounds))
        run.store.replace_scores("run", [size_row(self.stack)])
        run.store.replace_notes(FRONTIER, self._notes(contenders))
        # Last, because these rows say that the frontier is complete.
        run.store.replace_scores(FRONTIER, rows)

    def _contenders(
        self, run: Run, known: Sequence[Loss], reporter: Reporter
    ) -> tuple[Contenders, dict[str, float]]:  # fmt: skip
        """What the first part of the text chooses, and what everything loses there."""
        reporter.log(f"choosing among {len(self.tried)} plans and sets of layers")
        choose = self._evaluator(run, known, CHOOSE, reporter)
        mean_losses(choose, list(dict.fromkeys([self.whole, *(each.plan for each in self.tried)])), self.whole)
        sets = skip_sets(self.stack, choose, self.parts[CHOOSE], skip_sizes(self.stack.depth, self.config.sizes))
        tried = [*self.tried, *sets]
        mean_losses(choose, list(dict.fromkeys(each.plan for each in tried)), self.whole)
        losses = choose.complete()
        kept = least(tried, losses)
        draft = self._draft(run, reporter)
        healed = {**self.healed, **self._healed_here(run, kept, losses, reporter)}
        chosen_on = {str(plan): loss for plan, loss in losses.items()}
        chosen_on |= {name: self._of_model(run, known, name, stack, CHOOSE)[1] for name, stack in healed.items()}
        groups = [each.plan for each in kept if each.arm == PARALLEL]
        return Contenders(kept, draft, healed, dict(self._unfused(groups))), chosen_on

    def _healed_here(
        self, run: Run, kept: Sequence[ArmPlan], losses: Mapping[Plan, float], reporter: Reporter
    ) -> dict[str, Stack]:  # fmt: skip
        if self.config.heal_steps is None:
            return {}
        plans = plans_to_heal(sorted(kept, key=lambda each: losses[each.plan]))
        corpus = documents_of(self.corpus, self.parts[CHOOSE])
        models = healed_here(self.config, self.stack, plans, corpus, run.folder, reporter)
        return {name: opened(self.config, str(path), self.stack) for name, path in models.items()}

    def _draft(self, run: Run, reporter: Reporter) -> Speculation | None:
        """The draft that promises the most tokens per second; chosen once in the life of a run."""
        if len(self.settings) == 1:
            return None
        longest = self.config.draft_tokens
        stored = run.store.scores(FRONTIER_DRAFT)
        try:
            if not stored:
                speculative(self.stack, self.whole, tokens=longest)  # what cannot be is refused before it is searched
                reporter.log("choosing a draft")
                part = self.parts[CHOOSE]
                times = draft_times(self.stack, self.config.context, longest)
                (best, *_) = best_first(self.stack, leaving_out(self.stack, part), part, times, longest)
                stored = [Score.of(FRONTIER_DRAFT, "agreement", best.agreement, task=CHOOSE, plan=str(best.plan))]
                run.store.replace_scores(FRONTIER_DRAFT, stored)
            return speculative(self.stack, str(stored[0].plan), tokens=longest)
        except LayerwiseError as refused:
            self.notes.append(f"no drafts: {refused}")
            return None

    def _unfused(self, plans: Sequence[Plan]) -> Iterator[tuple[Plan, str]]:
        """Plans whose groups cannot run as one, with the reason."""
        for plan in plans:
            try:
                with self.stack.under(plan, fused=True):
                    pass
            except UnsupportedModel as refused:
                yield plan, str(refused)

    def _fresh(self, run: Run, known: Sequence[Loss], contenders: Contenders, reporter: Reporter) -> list[Loss]:
        """The losses of everything on the part that chose nothing."""
        plans = [self.whole, *(each.plan for each in contenders.kept)]
        reporter.log(f"measuring {len(plans)} plans on the other part")
        fresh = self._evaluator(run, known, REPORT, reporter)
        mean_losses(fresh, plans, self.whole)
        losses = fresh.losses(plans)
        for name, stack in contenders.healed.items():
            losses += self._of_model(run, known, name, stack, REPORT)[0]
        return losses

    def _of_model(
        self, run: Run, known: Sequence[Loss], name: str, stack: Stack, part: str
    ) -> tuple[list[Loss], float]:  # fmt: skip
        """A healed model as it is on a part of the text, its rows under its own name, and their mean."""
        own = Plan.identity(stack.depth)
        evaluator = GraphEvaluator(
            stack, [self.parts[part]], lambda rows: run.store.add_losses([replace(row, plan=name) for row in rows]),
            [replace(row, plan=str(own)) for row in known if row.plan == name], f"{part}/",
        )  # fmt: skip
        mean = mean_losses(evaluator, [own], own)[own]
        return [replace(row, plan=name) for row in evaluator.losses([own])], mean

    def _evaluator(self, run: Run, known: Sequence[Loss], name: str, reporter: Reporter) -> GraphEvaluator:
        own = [row for row in known if row.task.startswith(f"{name}/") and not row.plan.startswith(HEALED)]

        def watch(spent: Spent) -> None:
            reporter.progress(name, min(0.99, spent.head_tokens / max(1, spent.naive)))

        return GraphEvaluator(self.stack, [self.parts[name]], run.store.add_losses, own, f"{name}/", watch)

    def _once(self, contenders: Contenders) -> Callable[[int], RoundTimes]:
        """What times one round."""
        timed = contenders.timed(self.whole)
        stacks = {"": self.stack, **contenders.healed}
        prompts = self._prompts(self.parts[REPORT])
        config, draft = self.config, contenders.draft

        def once(number: int) -> RoundTimes:
            times = round_times(stacks, timed, self.settings, number, graphs=config.graphs, seed=config.seed)
            if draft is not None:
                decode: Setting = self.settings[-1]
                with self.stack.fused_projections():
                    ratio = generation_ratio(draft, prompts, config.new_tokens, max(number, 0))
                times[draft_name(draft), decode] = times[str(TimedPlan(self.whole, fused=True)), decode] * ratio
            return times

        return once

    def _prompts(self, data: EvalData) -> list[torch.Tensor]:
        """The beginnings of documents, (1, context) each, or as long as the document's first window is."""
        windows = [window for window in data.windows if window.index == 0] or list(data.windows)
        return [torch.tensor([window.ids[: self.config.context]]) for window in windows[:PROMPTS]]

    def _notes(self, contenders: Contenders) -> list[str]:
        same = [name for name, text in self.healed_on.items() if text == self.text.name]
        heard = [
            f"{name} was healed on a text of the same name ({self.text.name}), and may have learned from documents "
            "that are reported on: what it loses may be flattered"
            for name in same
        ]
        unfused = [f"{plan} was not timed with its members as one: {why}" for plan, why in contenders.unfused.items()]
        return [*self.notes, *heard, *unfused]


def draft_name(draft: Speculation) -> str:
    """What a draft is called among what is timed."""
    return f"draft {draft.draft}"
