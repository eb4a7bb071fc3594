"""The steps of a sweep: losses of every plan, their effects, similarity of hidden states, benchmarks.

Each part adds what is missing. Plans with numbers that are not finite are reported once the rest is stored.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from layerwise.data.text.corpus import Corpus
from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.activations.plan_states import (
    plan_state_rows,
    plan_states,
    three_zones,
    zone_rows,
)
from layerwise.measure.activations.similarity import similarity_sums
from layerwise.measure.contrasts.bits import bits_contrasts
from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.measure.contrasts.layers import core_of_sweep
from layerwise.measure.interventions.sweep import (
    TEXT,
    CostEstimate,
    CostMeter,
    cost_estimate,
    partition_of,
    plan_records,
    runnable,
    streaming_of,
    with_identity,
)
from layerwise.measure.interventions.sweep import sweep as swept
from layerwise.measure.interventions.sweep_pieces import Plain, piece_function
from layerwise.measure.language.bigram import unigram_loss
from layerwise.measure.language.continuations import continuations, encode_prompt
from layerwise.measure.language.evaluation_data import WINDOW as TEXT_WINDOW
from layerwise.measure.language.evaluation_data import EvalData, refuse_too_little, tokenize
from layerwise.measure.own_batches import own_batches
from layerwise.measure.stats.effects import describe_test, effects
from layerwise.page.text.wording import counted
from layerwise.plan import Member, Plan
from layerwise.plan.painters import GIVEN, PAINTERS_SEEDS, WINDOW
from layerwise.results import Loss, Manifest, Run, Score
from layerwise.results.rows import CONTINUATION, read_continuations
from layerwise.results.vocabulary import EFFECT, SIMILARITY, STATES, ZONES
from layerwise.runner.experiment import Inputs
from layerwise.runner.opening import folder_of, open_named, provenance, size_row, task_digest, uniform_row
from layerwise.runner.option import configured
from layerwise.runner.options.common import BATCH_TOKENS
from layerwise.runner.price import remaining_passes
from layerwise.runner.reporter import (
    Reporter,
    Silent,
    describe_data,
    describe_model,
    describe_readings,
    describe_streaming,
    duration,
    waiting,
)
from layerwise.runner.steps import Completed, Outline, Remaining, Steps, Unit, UnitSession
from layerwise.runner.text_length import ChosenText, TimedText, chosen_text
from layerwise.stack import Stack
from layerwise.stack.executors.partition import Partition
from layerwise.studies.sweep.batch_size import batch_tokens, recorded_batch_tokens
from layerwise.studies.sweep.benchmarks import BENCHMARKS, SweptBenchmarks
from layerwise.studies.sweep.cluster import SweepTasks, check_same_sweep, one_thread, opened_inputs, planned_workers
from layerwise.studies.sweep.half_depth import strategy_contrasts
from layerwise.studies.sweep.options import DEFAULT_FAMILIES, FEWER_FAMILIES, Sweep
from layerwise.studies.sweep.order_contrasts import order_of_sweep
from layerwise.studies.sweep.painters_contrasts import CONTRASTED, painters_contrasts

MOST_STATES = 512
"""Steps of a plan whose states are compared: as many states are held at once."""

LEFT_OUT = "plans"
"""The name of notes on plans that the model cannot run; they stand under the table of plans."""


def sweep(config: Sweep, reporter: Reporter, inputs: Inputs) -> Steps:
    """Measure every plan on the text, and everything that is computed from that."""
    with one_thread(config, inputs):
        unit = _opened(config, reporter, inputs)
        yield Outline(unit.manifest, unit.says, ahead=(unit,), chosen=unit.chosen.options)
        if config.ray is not None:
            unit.runner = SweepTasks(unit, inputs, reporter)
        try:
            return Completed(refusal=(yield from unit))
        finally:
            if unit.runner is not None:
                unit.runner.close()


def _opened(config: Sweep, reporter: Reporter, inputs: Inputs) -> SweepUnit:
    began = time.monotonic()
    if inputs.batches is not None:
        stack = inputs.stack or open_named(config, reporter)
        return SweepUnit(config, stack, own_batches(stack, inputs.batches, inputs.metric))
    corpus = inputs.corpus or config.corpus(config.model)
    stack = inputs.stack or open_named(config, reporter)
    with waiting(reporter, f"tokenizing {corpus.name}"):
        return SweepUnit(config, stack, corpus, began)


def open_piece_function(shared: Mapping[str, Plain]) -> Callable[[Plain], Plain]:
    """Open the sweep that `shared_by` describes in another process, and return the function of a piece.

    Raises what opening raises, and `RunError` if it is not the same here.
    """
    config = configured(Sweep, shared["options"], "a worker")
    inputs = opened_inputs(shared, config)
    unit = _opened(config, Silent(), inputs)
    check_same_sweep(shared, inputs.stack, unit.manifest)
    return unit.carry_out_piece


class SweepUnit(Unit[MeasureError | None]):
    """A sweep whose model is open, whose text is tokenized, and whose plans are lowered and counted.

    Raises `DataError` for too little text, and `MeasureError` for a benchmark that lm-eval does not know.
    """

    def __init__(self, config: Sweep, stack: Stack, corpus: Corpus | EvalData, began: float | None = None) -> None:
        given = corpus if isinstance(corpus, EvalData) else None
        if given is not None and (config.tasks or config.prompt):
            raise MeasureError("tasks and prompt need a text model with a text. Leave them out, or batches.")
        # Hidden states are compared token by token, and rows of a caller's own batches need not have any.
        self.config = config if given is None else replace(config, similarity=False)
        self.stack = stack
        self.runner: SweepTasks | None = None
        self.members, self.left_out = runnable(stack, config.members(stack.depth))
        self.plans = with_identity(stack, self.members)
        self.batch_tokens = BATCH_TOKENS if given is not None else self._batch_tokens()
        if isinstance(corpus, EvalData):
            self.chosen = ChosenText(corpus, {})
        else:
            self._choose(corpus, time.monotonic() if began is None else began)
        self.text = self.chosen.data
        refuse_too_little(self.text)
        self.manifest = self._manifest()
        if self.config.batch_tokens is None and isinstance(corpus, Corpus):
            self._keep_batch_tokens(corpus)
        self.cost = cost_estimate(stack, self.plans, self.text)
        sized = replace(self.config, batch_tokens=self.batch_tokens)
        self.benchmarks = SweptBenchmarks(sized, stack, self.members, self.plans) if config.tasks else None
        for prompt in config.prompt:
            encode_prompt(stack, prompt, config.new_tokens)

    def _choose(self, corpus: Corpus, began: float) -> None:
        config = self.config
        fewer = FEWER_FAMILIES if config.families == DEFAULT_FAMILIES else ()
        questions = [self._question(replace(config, families=each), corpus) for each in (config.families, *fewer)]
        self.config, self.chosen = chosen_text(config, questions, corpus, began)
        if self.config != config:
            self.members, self.left_out = runnable(self.stack, self.config.members(self.stack.depth))
            self.plans = with_identity(self.stack, self.members)

    def _keep_batch_tokens(self, corpus: Corpus) -> None:
        recorded = recorded_batch_tokens(self.config.run or folder_of(self.manifest), self.manifest)
        if recorded not in (None, self.batch_tokens) and not self.config.overwrite:
            self.batch_tokens = int(recorded or 0)
            self.text = self._tokenized(corpus, *self.chosen.amount(self.config))
            self.manifest = self._manifest()

    def _batch_tokens(self) -> int:
        config = self.config
        if config.batch_tokens is None and config.ray is None:
            return batch_tokens(self.stack, self.plans, config.max_length or TEXT_WINDOW)
        return config.batch_tokens or BATCH_TOKENS

    def _tokenized(self, corpus: Corpus, tokens: int | None, length: int | None) -> EvalData:
        return tokenize(
            self.stack, corpus, length=length, tokens=tokens, batch_tokens=self.batch_tokens, seed=self.config.seed
        )

    def _question(self, config: Sweep, corpus: Corpus) -> tuple[Sweep, TimedText]:
        members, _ = runnable(self.stack, config.members(self.stack.depth))
        plans = with_identity(self.stack, members)

        def cost(text: EvalData) -> CostEstimate:
            return self._with_similarity(cost_estimate(self.stack, plans, text), members, text)

        return config, TimedText(self.stack, partial(self._tokenized, corpus), cost, len(plans) - 1)

    def _with_similarity(self, cost: CostEstimate, members: Sequence[Member], text: EvalData) -> CostEstimate:
        compared = len(compared_plans(members, self.stack.depth)) + 1 if self.config.similarity else 0
        tokens = compared * sum(batch.size for batch in text.batches)
        return replace(cost, layer_tokens=cost.layer_tokens + self.stack.depth * tokens)

    def _manifest(self) -> Manifest:
        config = self.config
        limit = (f"limit:{config.task_limit}",) if config.task_limit else ()
        shots = () if config.num_fewshot is None else (f"shots:{config.num_fewshot}",)
        settings: dict[str, object] = {"batch_tokens": self.batch_tokens}
        if config.prompt:
            settings |= {"prompts": list(config.prompt), "new_tokens": config.new_tokens}
        if config.tasks and config.task_folder is not None:
            settings["task_folder"] = task_digest(config.task_folder)
        return provenance(
            self.stack,
            self.text,
            families=config.plan_names(),
            tasks=(*config.tasks, *limit, *shots),
            seed=config.seed,
            settings=settings,
        )

    def says(self) -> Iterator[str]:
        cost = self.cost
        yield describe_model(self.stack)
        yield describe_data(self.text)
        yield from self.chosen.says
        few_units = describe_test(self.text.units, len(self.plans) - 1)
        if few_units is not None:
            yield few_units
        yield (
            f"{cost.plans} plans: {cost.naive:,} layer evaluations one by one, {cost.evaluations:,} at least; "
            f"the sweep does the least ({cost.naive / cost.evaluations:.2f} x fewer)"
        )
        streaming = streaming_of(self.stack, self.plans, self.text)
        if streaming is not None:
            yield describe_streaming(streaming)
        workers = planned_workers(self.config) if self.config.ray is not None else None
        if workers is not None:
            yield describe_partition(partition_of(self.stack, self.plans, self.text, workers), workers)
        if self.benchmarks is not None:
            yield from self.benchmarks.describe()
        for note in self.left_out:
            yield f"note: {note}"

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Count the passes of the losses that are missing; benchmarks are not among them."""
        due = cost_estimate(self.stack, self.plans, self.text, None if run is None else run.store.finished)
        if not due.head_tokens:
            return None
        due = self._with_similarity(due, self.members, self.text)
        return remaining_passes(self.stack, self.text, due, self.plans, pace=self.chosen.seconds)

    def carry_out(self, session: UnitSession) -> MeasureError | None:
        """Compute missing losses, effects, similarity and benchmarks.

        Returns an error for plans whose numbers are not finite, once the rest is stored. Raises `MeasureError` at once
        if the original model's are not.
        """
        run, reporter = session.run, session.reporter
        few_units = describe_test(self.text.units, len(self.plans) - 1)
        run.store.replace_notes(LEFT_OUT, [*self.left_out, *([few_units] if few_units else [])])
        run.store.add_plans(plan_records(self.members))
        failures = self._sweep(run, reporter)
        if self.config.similarity and not run.store.scores(SIMILARITY):
            reporter.log("similarity of the hidden states")
            sums = similarity_sums(self.stack, self.text.batches, seed=self.config.seed)
            _store_contrasts(run, sums.contrasts(self.config.seed))
            run.store.replace_scores(SIMILARITY, sums.scores())
        if self.config.similarity:
            self._compare_states(run, reporter)
        self._continue_prompts(run, reporter)
        if self.benchmarks is not None:
            failures += self.benchmarks.measure(run, reporter, self.runner)
        return MeasureError("\n".join(failures)) if failures else None

    def _compare_states(self, run: Run, reporter: Reporter) -> None:
        rows, zones = run.store.scores(STATES), run.store.scores(ZONES)
        measured = {score.plan for score in rows}
        left_out: list[str] = []
        for plan in compared_plans(self.members, self.stack.depth):
            if str(plan) in measured:
                continue
            reporter.log(f"zones of the hidden states: {plan}")
            try:
                states = plan_states(self.stack, plan, self.text.batches)
            except MeasureError as error:
                left_out.append(str(error))
                continue
            if plan == self.plans[0]:
                _store_contrasts(run, three_zones(states, seed=self.config.seed))
            zones += zone_rows(states, plan, seed=self.config.seed)
            rows += plan_state_rows(states, plan)
            run.store.replace_scores(ZONES, zones)
            run.store.replace_scores(STATES, rows)
        if left_out:
            run.store.replace_notes(ZONES, left_out)

    def _continue_prompts(self, run: Run, reporter: Reporter) -> None:
        known = list(read_continuations(run.store.notes(CONTINUATION)))
        finished = {(each.plan, each.prompt) for each in known}
        plans = continued_plans(self.members, self.stack.depth)
        missing = len(dict.fromkeys(self.config.prompt)) * len(plans) - len(finished)
        if not self.config.prompt or missing <= 0:
            return
        reporter.log(f"texts: {counted(len(plans), 'plan')}, {counted(len(self.config.prompt), 'prompt')}")
        for each in continuations(self.stack, plans, self.config.prompt, self.config.new_tokens, finished=finished):
            known.append(each)
            run.store.replace_notes(CONTINUATION, [one.note().text for one in known])

    def _sweep(self, run: Run, reporter: Reporter) -> list[str]:
        """Measure missing losses and what follows from them; return a sentence per plan without finite losses."""
        due = cost_estimate(self.stack, self.plans, self.text, run.store.finished)
        failures = self._measure_losses(due, run, reporter) if due.head_tokens else []
        if due.head_tokens or not run.store.scores(EFFECT):
            reporter.log("intervals: paired bootstrap")
            losses = _of_whole_plans(list(run.store.text_losses()), self._windows())
            tasks = self.text.scored_answer_tasks
            scores = effects(losses, str(self.plans[0]), seed=self.config.seed, answer_tasks=tasks)
            records, seed, depth = plan_records(self.members), self.config.seed, self.stack.depth
            unigram = unigram_loss(window.scored_ids for window in self._windows())
            if CONTRASTED.intersection(self.config.families):
                _store_contrasts(run, painters_contrasts(losses, records, depth, seed=seed, unigram=unigram))
            _store_contrasts(run, strategy_contrasts(losses, records, depth, tasks, seed=seed))
            _store_contrasts(run, bits_contrasts(losses, records, depth, seed=seed))
            _store_contrasts(run, core_of_sweep(losses, depth, seed=seed))
            _store_contrasts(run, order_of_sweep(losses, records, depth, tasks, seed=seed, unigram=unigram))
            run.store.replace_scores(EFFECT, scores)
        return failures

    def _measure_losses(self, due: CostEstimate, run: Run, reporter: Reporter) -> list[str]:
        spent, count = CostMeter(), 1 if self.runner is None else self.runner.count

        def progress(meter: CostMeter, due: CostEstimate) -> None:
            nonlocal spent
            spent = meter
            left, busy = meter.seconds_left(due), meter.layer_seconds + meter.head_seconds
            share = busy / (busy + left) if left is not None and busy + left > 0 else 0.0
            left = None if left is None else left / count
            reporter.progress("sweep", 1.0 if meter.head_tokens >= due.head_tokens else share, left)

        failures = []
        reading = None if self.stack.resident is None else self.stack.resident.count()
        start = time.perf_counter()
        try:
            swept(
                self.stack,
                self.plans,
                self.text,
                sink=run.store.add_losses,
                finished=run.store.finished,
                progress=progress,
                runner=self.runner,
            )
        except MeasureError as error:
            if not self._is_measured(self.plans[0], run):
                raise
            failures = [str(error)]
        seconds = time.perf_counter() - start
        if reading is not None:
            reporter.log(describe_readings(reading))
        uniform = [uniform_row(self.stack)] if self.text.objective is not None else []
        rows = [size_row(self.stack), *uniform, *_cost_rows(self.cost, due, spent, seconds)]
        run.store.replace_scores("run", rows)
        busy = (spent.layer_seconds + spent.head_seconds) / seconds / count
        reporter.log(
            f"sweep: {duration(seconds)}, {busy:.0%} of it in layers and heads; "
            f"{spent.layer_tokens / due.layer_tokens:.2f} x the least layer evaluations, "
            f"{spent.most_live} states live at most"
        )
        return failures

    def carry_out_piece(self, piece: Plain) -> Plain:
        texts = {TEXT: self.text}
        if self.benchmarks is not None and self.benchmarks.requests.likelihoods is not None:
            texts[BENCHMARKS] = self.benchmarks.requests.likelihoods
        return piece_function(self.stack, texts)(piece)

    def _is_measured(self, plan: Plan, run: Run) -> bool:
        finished = run.store.finished
        return all(str(plan) in finished(each.task, each.document, each.index) for each in self._windows())

    def _windows(self) -> list[Window]:
        return [window for batch in self.text.batches for window in batch.windows]


def continued_plans(members: Sequence[Member], depth: int) -> tuple[Plan, ...]:
    """Return the plans to continue prompts under: the trained order, single plans and windows asked for, and painters
    near half the depth; of random orders the first.

    >>> from layerwise.plan import families
    >>> [str(plan) for plan in continued_plans(families.painters(6), 6)]
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


def compared_plans(members: Sequence[Member], depth: int) -> tuple[Plan, ...]:
    """Return the plans to compare hidden states under: the trained order, single plans asked for, and skip and
    middle repeat of every window (Painters, figure 15); at most `MOST_STATES` steps."""
    chosen = (
        member.plan
        for member in members
        if member.family == GIVEN or (member.family.startswith(WINDOW) and member.strategy in ("skip", "middle_repeat"))
    )
    distinct = dict.fromkeys([Plan.identity(depth), *chosen])
    return tuple(plan for plan in distinct if len(plan.steps()) <= MOST_STATES)


def describe_partition(partition: Partition, workers: int) -> str:
    """What so many workers compute beside one, and how much faster they can be.

    >>> describe_partition(Partition(464.0, (240.0, 232.0)), 2)
    '2 workers: 2 pieces of windows and plans, 1.7 % of the work twice, at most 1.93 x as fast as one'
    """
    return (
        f"{workers} worker{'s' * (workers != 1)}: {len(partition.parts):,} pieces of windows and plans, "
        f"{100 * partition.duplicates:.1f} % of the work twice, at most {partition.bound(workers):.2f} x as fast as one"
    )


def _store_contrasts(run: Run, rows: Sequence[Score]) -> None:
    claims = {score.claim for score in rows if score.claim}
    run.store.replace_scores(CONTRAST, renewed(run.store.scores(CONTRAST), rows, claims))


def _cost_rows(whole: CostEstimate, due: CostEstimate, spent: CostMeter, seconds: float) -> list[Score]:
    """Return the sweep's estimated and actual cost as scores of measure `run`; a resumed sweep has no seconds."""
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
    return [Score("run", name, float(value), part="sweep") for name, value in figures.items()]


def _of_whole_plans(losses: Sequence[Loss], windows: Sequence[Window]) -> list[Loss]:
    measured = Counter(row.plan for row in losses)
    return [row for row in losses if measured[row.plan] == len(windows)]
