"""The tasks of a sweep: losses and effects, similarity of hidden states, zones, and continuations of prompts.

Each task stores its results, and computes only those that are missing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.errors import MeasureError
from layerwise.measure.activations.plan_states import plan_state_rows, plan_states, zone_rows
from layerwise.measure.activations.similarity import similarity_sums
from layerwise.measure.contrasts.contrast import CONTRAST, replace_claims
from layerwise.measure.contrasts.layers import contrast_core_of_sweep, contrast_quantized_layers
from layerwise.measure.interventions.sweep import (
    CostEstimate,
    CostMeter,
    ShardRunner,
    estimate_cost,
    plan_records,
    sweep,
)
from layerwise.measure.language.bigram import unigram_loss
from layerwise.measure.language.continuations import continue_prompts
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.effects import compute_effects
from layerwise.page.formatting import format_count
from layerwise.plan import Member, Plan
from layerwise.plan.painters import GIVEN, PAINTERS_SEEDS, WINDOW
from layerwise.results import Run, Score
from layerwise.results.rows import CONTINUATION, read_continuations
from layerwise.results.vocabulary import EFFECT, SIMILARITY, STATES, ZONES
from layerwise.runner.opening import make_size_row, make_uniform_row
from layerwise.runner.price import remaining_passes
from layerwise.runner.reporter import Reporter, describe_readings, format_duration
from layerwise.runner.tasks import Remaining, Study, Task
from layerwise.stack import Stack
from layerwise.studies.sweep.contrasts import CONTRASTED, contrast_at_half_depth, contrast_order, contrast_painters

MAX_STATES = 512
"""Maximum number of steps of a plan whose states are compared. All of its states are in memory at the same time."""

PLAN_NOTES = "plans"
"""Measure of notes on plans that the model cannot run. They are shown under the table of plans."""


@dataclass(frozen=True)
class LossesTask(Task[list[str]]):
    """The losses of every plan on the text, and the effects and contrasts that are computed from them.

    The result has a sentence for each plan whose losses are not finite. If `runner` is given, losses are computed on a
    cluster. `pace` is the measured time per token in seconds. `compared` is the number of forward passes for comparing
    hidden states.
    """

    stack: Stack
    members: Sequence[Member]
    plans: Sequence[Plan]
    text: EvalData
    families: Sequence[str]
    notes: Sequence[str]
    seed: int
    compared: int = 0
    pace: float | None = None
    runner: ShardRunner | None = None

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        due = estimate_cost(self.stack, self.plans, self.text, None if run is None else run.store.finished)
        if not due.head_tokens:
            return None
        due = add_similarity(due, self.stack, self.compared, self.text)
        return remaining_passes(self.stack, self.text, due, self.plans, pace=self.pace)

    def execute(self, study: Study) -> list[str]:
        run, reporter = study.run, study.reporter
        run.store.replace_notes(PLAN_NOTES, self.notes)
        run.store.add_plans(plan_records(self.members))
        due = estimate_cost(self.stack, self.plans, self.text, run.store.finished)
        failures = self._measure(due, run, reporter) if due.head_tokens else []
        if due.head_tokens or not run.store.scores(EFFECT):
            reporter.log("intervals: paired bootstrap")
            self._compute_effects(run)
        return failures

    def _compute_effects(self, run: Run) -> None:
        windows = self.text.windows
        stored = list(run.store.text_losses())
        measured = Counter(row.plan for row in stored)
        losses = [row for row in stored if measured[row.plan] == len(windows)]
        tasks, seed, depth = self.text.scored_answer_tasks, self.seed, self.stack.depth
        scores = compute_effects(losses, str(self.plans[0]), seed=seed, answer_tasks=tasks)
        records = plan_records(self.members)
        unigram = unigram_loss(window.scored_ids for window in windows)
        contrasts = [
            *contrast_at_half_depth(losses, records, depth, tasks, seed=seed),
            *contrast_quantized_layers(losses, records, depth, seed=seed),
            *contrast_core_of_sweep(losses, depth, seed=seed),
            *contrast_order(losses, records, depth, tasks, seed=seed, unigram=unigram),
        ]
        if CONTRASTED.intersection(self.families):
            contrasts += contrast_painters(losses, records, depth, seed=seed, unigram=unigram)
        _store_contrasts(run, contrasts)
        run.store.replace_scores(EFFECT, scores)

    def _measure(self, due: CostEstimate, run: Run, reporter: Reporter) -> list[str]:
        reading = None if self.stack.resident is None else self.stack.resident.count()
        start = time.perf_counter()
        spent, failures = store_losses("sweep", self.stack, self.plans, self.text, run, reporter, self.runner)
        seconds = time.perf_counter() - start
        if reading is not None:
            reporter.log(describe_readings(reading))
        uniform = [make_uniform_row(self.stack)] if self.text.objective is not None else []
        whole = estimate_cost(self.stack, self.plans, self.text)
        run.store.replace_scores(
            "run", [make_size_row(self.stack), *uniform, *_make_cost_rows(whole, due, spent, seconds)]
        )
        busy = (spent.layer_seconds + spent.head_seconds) / seconds / (1 if self.runner is None else self.runner.count)
        reporter.log(
            f"sweep: {format_duration(seconds)}, {busy:.0%} of it in the layers and the output head; "
            f"{spent.layer_tokens / due.layer_tokens:.2f}x the minimum number of layer evaluations; "
            f"at most {spent.most_live} hidden states in memory"
        )
        return failures


@dataclass(frozen=True)
class SimilarityTask(Task[None]):
    """The similarity of hidden states in the original model, and the states and zones of some plans."""

    stack: Stack
    members: Sequence[Member]
    text: EvalData
    seed: int

    def execute(self, study: Study) -> None:
        run, reporter = study.run, study.reporter
        if not run.store.scores(SIMILARITY):
            reporter.log("similarity of the hidden states")
            sums = similarity_sums(self.stack, self.text.batches, seed=self.seed)
            _store_contrasts(run, sums.contrasts(self.seed))
            run.store.replace_scores(SIMILARITY, sums.scores())
        self._compare_states(run, reporter)

    def _compare_states(self, run: Run, reporter: Reporter) -> None:
        rows, zones = run.store.scores(STATES), run.store.scores(ZONES)
        measured = {score.plan for score in rows}
        failures: list[str] = []
        for plan in select_compared_plans(self.members, self.stack.depth):
            if str(plan) in measured:
                continue
            reporter.log(f"zones of the hidden states: {plan}")
            try:
                states = plan_states(self.stack, plan, self.text.batches)
            except MeasureError as error:
                failures.append(str(error))
                continue
            zones += zone_rows(states, plan, seed=self.seed)
            rows += plan_state_rows(states, plan)
            run.store.replace_scores(ZONES, zones)
            run.store.replace_scores(STATES, rows)
        if failures:
            run.store.replace_notes(ZONES, failures)


@dataclass(frozen=True)
class ContinuationsTask(Task[None]):
    """The continuations of prompts that some plans generate."""

    stack: Stack
    members: Sequence[Member]
    prompts: Sequence[str]
    new_tokens: int

    def execute(self, study: Study) -> None:
        run, reporter = study.run, study.reporter
        stored = list(read_continuations(run.store.notes(CONTINUATION)))
        finished = {(each.plan, each.prompt) for each in stored}
        plans = select_continued_plans(self.members, self.stack.depth)
        missing = len(dict.fromkeys(self.prompts)) * len(plans) - len(finished)
        if missing <= 0:
            return
        reporter.log(f"continuations: {format_count(len(plans), 'plan')}, {format_count(len(self.prompts), 'prompt')}")
        for each in continue_prompts(self.stack, plans, tuple(self.prompts), self.new_tokens, finished=finished):
            stored.append(each)
            run.store.replace_notes(CONTINUATION, [one.note().text for one in stored])


def store_losses(
    name: str,
    stack: Stack,
    plans: Sequence[Plan],
    data: EvalData,
    run: Run,
    reporter: Reporter,
    runner: ShardRunner | None,
) -> tuple[CostMeter, list[str]]:
    """Compute and store the missing losses. Return the cost, and sentences about plans with non-finite losses."""
    spent, count = CostMeter(), 1 if runner is None else runner.count
    finished = run.store.finished

    def progress(meter: CostMeter, due: CostEstimate) -> None:
        nonlocal spent
        spent = meter
        left, busy = meter.seconds_left(due), meter.layer_seconds + meter.head_seconds
        share = busy / (busy + left) if left is not None and busy + left > 0 else 0.0
        left = None if left is None else left / count
        reporter.progress(name, 1.0 if meter.head_tokens >= due.head_tokens else share, left)

    try:
        sink = run.store.add_losses
        sweep(stack, plans, data, sink=sink, finished=finished, progress=progress, runner=runner)
    except MeasureError as error:
        if not all(str(plans[0]) in finished(*cell) for cell in data.cells):
            raise
        return spent, [str(error)]
    return spent, []


def add_similarity(cost: CostEstimate, stack: Stack, compared: int, text: EvalData) -> CostEstimate:
    tokens = compared * sum(batch.size for batch in text.batches)
    return replace(cost, layer_tokens=cost.layer_tokens + stack.depth * tokens)


def select_continued_plans(members: Sequence[Member], depth: int) -> tuple[Plan, ...]:
    """Return the plans under which prompts are continued.

    These are the identity plan, the plans and windows that were requested, and each of the Painters' strategies on a
    window of about half the depth. Of random orders, only the first is used.

    >>> from layerwise.plan import families
    >>> [str(plan) for plan in select_continued_plans(families.painters(6), 6)]
    ['0-5', '0 1 5', '0 1 3*3 5', '0 1 4-2 5', '0-2 4 3 5', '0 1 (2|3|4) 5', '0 1 (2|3|4)*3 5']
    """
    sizes = {member.affected for member in members if member.family == "painters"}
    half = min(sizes, key=lambda size: (abs(2 * size - depth), size), default=None)
    first = [
        member
        for member in members
        if member.draw in (None, PAINTERS_SEEDS[0])
        and (
            member.family == GIVEN
            or member.family.startswith(WINDOW)
            or (member.family == "painters" and member.affected == half)
        )
    ]
    return tuple(dict.fromkeys([Plan.identity(depth), *(member.plan for member in first)]))


def select_compared_plans(members: Sequence[Member], depth: int) -> tuple[Plan, ...]:
    """Return the plans whose hidden states are compared.

    These are the identity plan, the plans that were requested, and the strategies skip and middle repeat for every
    window (Painters, figure 15), if they have at most `MAX_STATES` steps.
    """
    chosen = (
        member.plan
        for member in members
        if member.family == GIVEN or (member.family.startswith(WINDOW) and member.strategy in ("skip", "middle_repeat"))
    )
    distinct = dict.fromkeys([Plan.identity(depth), *chosen])
    return tuple(plan for plan in distinct if len(plan.steps()) <= MAX_STATES)


def _store_contrasts(run: Run, rows: Sequence[Score]) -> None:
    claims = {score.claim for score in rows if score.claim}
    run.store.replace_scores(CONTRAST, replace_claims(run.store.scores(CONTRAST), rows, claims))


def _make_cost_rows(whole: CostEstimate, due: CostEstimate, spent: CostMeter, seconds: float) -> list[Score]:
    figures: dict[str, float] = {
        "plans": whole.plans,
        "evaluations_naive": whole.naive,
        "evaluations_bound": whole.evaluations,
        "evaluations_ratio": spent.layer_tokens / due.layer_tokens,
        "states_live": spent.most_live,
    }
    if due == whole:
        figures |= {
            "seconds": seconds,
            "seconds_in_layers": spent.layer_seconds,
            "seconds_in_heads": spent.head_seconds,
        }
    return [Score("run", name, float(value), section="sweep") for name, value in figures.items()]
