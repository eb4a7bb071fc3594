"""The steps of an evaluation, which resumes with the next paradigm or fine-tuning; rows of others stay."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from layerwise.data.model_location import location_of
from layerwise.data.suites.classification import Task
from layerwise.data.suites.glue import GLUE
from layerwise.errors import DataError, ModelError, OptionError, RunError
from layerwise.measure.interventions.edge_cuts import DRAWS
from layerwise.measure.interventions.sweep import runnable
from layerwise.measure.language.babylm import FILES, WEIGHTS, babylm_rows
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.page import ReportData
from layerwise.page.show import ABSENT, Show
from layerwise.page.text.table import Table
from layerwise.plan import EdgeCut
from layerwise.results import Manifest, Rows, Run, Score
from layerwise.results.run import is_run
from layerwise.results.training_record import FILE, TrainingRecord
from layerwise.results.vocabulary import ATTRIBUTION, BABYLM, BACKBONE, EDGES, LAYER_WEIGHTS
from layerwise.runner.experiment import Inputs
from layerwise.runner.finetuned_tasks import PREDICTIONS, FineTunedModel, run_benchmarks
from layerwise.runner.minimal_pairs import (
    EvaluatedModel,
    Opened,
    ScoringOptions,
    discard,
    evaluate_models,
    pairs_table,
)
from layerwise.runner.opening import described, in_words, open_named, quiet_transformers
from layerwise.runner.reporter import Reporter
from layerwise.runner.steps import Completed, Outline, Steps, Unit, UnitSession
from layerwise.runner.training_options import changed
from layerwise.runner.training_runs import finished_models, store_comparisons
from layerwise.stack import Stack, weight_hash
from layerwise.stack.load import resolve_device
from layerwise.studies.evaluate.attribution import SENTENCES, TASK, attribute
from layerwise.studies.evaluate.edges import (
    ORIGIN,
    check_phenomena,
    edges_table,
    evaluate_without_edges,
    find_wiring,
    has_layer_weights,
)
from layerwise.studies.evaluate.held_weights import hold_frozen, with_weight_conditions
from layerwise.studies.evaluate.minutes import chosen_limit, record_limit, recorded_limit, resolutions
from layerwise.studies.evaluate.options import Evaluation
from layerwise.studies.evaluate.page import PLANS, TASK_TABLE, Taught, plan_table
from layerwise.studies.evaluate.plans import (
    check_one_depth,
    run_plans,
    store_summary,
)
from layerwise.studies.evaluate.suites import digest_of_suites, fine_tuned_tasks, pair_sets
from layerwise.train.fine_tuning import FineTuningConfig
from layerwise.train.load_trained import open_trained

FAMILY = "evaluation"
"""What the manifest of an evaluation of a single model calls itself."""


def evaluation(config: Evaluation, reporter: Reporter, inputs: Inputs) -> Steps:
    unit = EvaluationUnit(config, reporter, inputs.stack)
    yield Outline(
        unit.manifest,
        unit.says,
        recipe=unit.recipe,
        folder=unit.folder,
        discard=unit.discard,
        results=unit.results,
        lasts=False,
    )
    yield from unit
    return Completed()


class EvaluationUnit(Unit[None]):
    """An evaluation of every finished model in a run, or of a single model; `models` are by label, `ARM/SEED`.

    Raises `DataError` for unreadable suites or fine-tuning an opened model, `RunError` for a run without a finished
    model, `ModelError` for a model without a tokenizer.
    """

    def __init__(self, config: Evaluation, reporter: Reporter, stack: Stack | None = None) -> None:
        self.config, self.began = config, time.monotonic()
        self.folder: Path | None = None
        quiet_transformers()
        self.pairs, self.tasks = pair_sets(config), fine_tuned_tasks(config)
        self.settings = FineTuningConfig(training_limit=config.limit, test_limit=config.limit, **config.changes())
        # A fine-tuning by other settings is another measurement of the same model and tasks: a run of its own.
        # So is one of fewer pairs, where minutes decide how many.
        self.recipe = {**config.changes(), **changed(minutes=config.minutes)} or None
        if stack is not None and (self.tasks or ATTRIBUTION in config.suite):
            raise DataError("fine-tuning opens its models anew: give the name or the folder of the model")
        # The stack of a single model; those of a run are opened one after another.
        self._single: Stack | None = None
        if stack is None and is_run(config.model):
            self.models = self._take_run(Path(config.model).expanduser())
        elif config.layer_weights:
            raise OptionError("--layer-weights compares the variants of a run: give the folder of a `train elc`")
        else:
            self._single = stack or self._open_model(reporter)
            self.models = self._take_model(self._single)
        self.cuts = tuple(map(EdgeCut.parse, config.without_edges))
        self.weighted = self._find_weighted() if self.cuts else ()
        self.left_out: tuple[str, ...] = ()
        self.planned = self._plan_models()

    def _plan_models(self) -> tuple[FineTunedModel, ...]:
        config = self.config
        if not config.plan_names():
            return tuple(self.models.values())
        result = []
        for label, model in self.models.items():
            stack = self._stack(label)
            members, left_out = runnable(stack, config.members(stack.depth))
            result.append(replace(model, members=members))
            self.left_out = tuple(dict.fromkeys((*self.left_out, *left_out)))
        check_one_depth(result)
        return tuple(result)

    def _find_weighted(self) -> tuple[str, ...]:
        check_phenomena(self.pairs)
        if self._single is None:
            labels = [label for label, model in self.models.items() if has_layer_weights(Path(model.location))]
        else:
            labels = [] if find_wiring(self._single.model) is None else list(self.models)
        if not labels:
            raise ModelError(f"{self.config.model} has no learned layer weights; {ORIGIN}")
        return tuple(labels)

    def _take_run(self, folder: Path) -> dict[str, FineTunedModel]:
        models = finished_models(folder)
        if not models:
            raise RunError(f"{folder} holds no finished model (RUN/ARM/seed-N/model); train one, or give a model")
        self.folder = folder
        with Run.open(folder) as run:
            self.manifest = run.manifest
        return {each.label: hold_frozen(FineTunedModel(each.arm, each.seed, each.folder)) for each in models}

    def _take_model(self, stack: Stack) -> dict[str, FineTunedModel]:
        model = self.config.model
        _with_tokenizer(stack)
        record = TrainingRecord.read(Path(model).expanduser())
        arm, seed = (Path(model).name, 0) if record is None else (record.arm, record.seed)
        self.manifest = self._manifest(stack)
        own = FineTunedModel(arm, seed, location_of(model))
        return {own.label: own}

    def _open_model(self, reporter: Reporter) -> Stack:
        path = Path(self.config.model).expanduser()
        return self._open_trained(path) if (path / FILE).is_file() else open_named(self.config, reporter)

    def _open_trained(self, folder: Path) -> Stack:
        return open_trained(folder, device=self.config.device, dtype=self.config.dtype).stack

    def _stack(self, label: str) -> Stack:
        single = self._single
        return self._open_trained(Path(self.models[label].location)) if single is None else single

    def _open(self, label: str) -> Opened:
        return _with_tokenizer(self._stack(label))

    def _manifest(self, stack: Stack) -> Manifest:
        examples = sum(len(each.pairs) for each in self.pairs) + sum(len(task.test) for task in self.tasks)
        names = [each.origin for each in self.pairs] + [task.name for task in self.tasks]
        if ATTRIBUTION in self.config.suite:
            examples, names = examples + SENTENCES, [*names, TASK]
        return described(
            stack,
            weight_hash(stack.model),
            corpus="; ".join(names),
            corpus_hash=digest_of_suites(self.pairs, self.tasks),
            documents=examples,
            tokens=examples,
            window=1,
            families=(FAMILY, *self.config.plan_names()),
            tasks=self.config.suite,
            seed=self.config.seed,
            settings=self.config.changes(),
        )

    def says(self) -> Iterator[str]:
        count = len(self.models)
        yield f"{count} model{'s' * (count != 1)}: {', '.join(self.models)}"
        for each in self.pairs:
            yield f"{each.suite}: {len(each.pairs):,} pairs"
        if self.tasks:
            yield f"fine-tuned tasks: {', '.join(task.name for task in self.tasks)}"
        plans = [len(model.plans) for model in self.planned]
        if any(plans):
            yield f"plans: {max(plans):,}, each active in fine-tuning and in the test, beside the model as trained"
        for note in self.left_out:
            yield f"note: {note}"
        scored = 2 * count * sum(len(each.pairs) for each in self.pairs)
        most = "" if self.config.minutes is None else f" at most (--minutes {self.config.minutes:g})"
        if self.cuts:
            passes = 1 + len(self.cuts) * (1 + DRAWS)
            yield (
                f"without edges: {len(self.cuts)} conditions of {len(self.weighted)} models, each with {DRAWS} random "
                f"cuts: at most {2 * len(self.weighted) * passes * sum(len(each.pairs) for each in self.pairs):,} "
                "sentences more"
            )
        arms = {"held": LAYER_WEIGHTS, "added": BACKBONE}
        compared = [arms[name] for name in self.config.layer_weights]
        tuned = count + sum(model.arm in compared for model in self.models.values())
        tunings = (tuned + sum(plans)) * len(self.tasks) * self.config.seeds
        tunings += 2 * tuned * (ATTRIBUTION in self.config.suite)  # with the labels and with shuffled ones
        yield f"cost: {scored:,} sentences to score{most}, {tunings:,} fine-tunings"

    def discard(self, folder: Path) -> None:
        for suite in {task.measure for task in self.tasks}:
            shutil.rmtree(folder / PREDICTIONS / suite, ignore_errors=True)

    def carry_out(self, session: UnitSession) -> None:
        config, run, reporter = self.config, session.run, session.reporter
        if config.overwrite:
            discard(self.pairs, run)
            for measure in (*([EDGES] if self.cuts else []), *({ATTRIBUTION} & set(config.suite))):
                run.store.replace_scores(measure, [])
        if config.minutes is not None:
            self._limit(config.minutes, run, reporter)
        how = in_words(resolve_device(config.device), config.dtype)
        models = {
            label: EvaluatedModel(own.arm, own.seed, partial(self._open, label)) for label, own in self.models.items()
        }
        options = ScoringOptions(config.temperature, config.too_long, how)
        evaluate_models(list(models.values()), self.pairs, options, run, progress=reporter.progress)
        if self.cuts:
            evaluate_without_edges(
                [models[label] for label in self.weighted],
                self.pairs,
                self.cuts,
                options,
                run,
                seed=config.seed,
                progress=reporter.progress,
            )
        self._fine_tune(run, reporter)
        if self._single is None:
            store_comparisons(run)

    def _limit(self, minutes: float, run: Run, reporter: Reporter) -> None:
        config = self.config
        limit = None if config.overwrite else recorded_limit(run, minutes)
        if limit is None:
            first = next(iter(self.models))
            limit, text = chosen_limit(
                minutes,
                lambda: SentenceScorer.of(*self._open(first)),
                self.pairs,
                models=len(self.models),
                began=self.began,
                temperature=config.temperature,
                too_long=config.too_long,
            )
            record_limit(run, minutes, limit)
            reporter.log(text)
        self.pairs = tuple(each.first(limit) for each in self.pairs)
        for text in resolutions(self.pairs):
            reporter.log(text)

    def _fine_tune(self, run: Run, reporter: Reporter) -> None:
        config = self.config

        def progress(label: str, step: int, steps: int) -> None:
            reporter.progress(label, step / steps)

        seeds, device = config.seeds, config.device
        trained = list(with_weight_conditions(list(self.models.values()), config.layer_weights, run.folder))
        if ATTRIBUTION in config.suite:
            attribute(trained, self.settings, run, progress=progress, device=device)
        run_benchmarks(trained, self.tasks, self.settings, run, seeds=seeds, device=device, progress=progress)
        has_plans = any(model.plans for model in self.planned)
        for number, task in enumerate(self.tasks if has_plans else (), start=1):
            run.store.replace_notes(PLANS, self.left_out)
            run_plans(self.planned, [task], self.settings, run, seeds=seeds, device=device, progress=progress)
            self._summarise(run, self.tasks[:number])
        self._summarise(run, self.tasks)

        if set(config.suite) & set(AGGREGATED):
            store_aggregate(run)

    def _summarise(self, run: Run, tasks: Sequence[Task]) -> None:
        glue = [task for task in tasks if task.measure == GLUE]
        if glue:
            store_summary(self.planned, glue, run, seeds=self.config.seeds)

    def results(self, run: Run) -> Sequence[str]:
        return [
            *(pairs_table(run, each) for each in self.pairs),
            *(edges_table(run, each.suite) for each in self.pairs if self.cuts),
            *(_task_tables(run) if self.tasks else ()),
            *filter(None, [aggregate_lines(run) if set(self.config.suite) & set(AGGREGATED) else ""]),
        ]


def _with_tokenizer(stack: Stack) -> Opened:
    if stack.tokenizer is None:
        raise ModelError(f"{stack.source.name} has no tokenizer beside it; give one with --tokenizer PATH")
    return stack.model, stack.tokenizer


def _task_tables(run: Run) -> Iterator[str]:
    data = ReportData({}, tuple(run.store.plans()), tuple(run.store.scores()))
    titled = [(f"{title}, fine-tuned", table) for title, table in TASK_TABLE.tables(data)]
    for own in Taught.every(data):
        head = f"{own.suite} under plans, active in fine-tuning and in the test, {own.arm}"
        titled.append((head, plan_table(data, own.suite, own.arm)))
    for head, table in titled:
        yield "\n".join([f"{head}:", *(f"  {line}" for line in table.lines())])


ONE = Show(decimals=1)
AGGREGATED = ("blimp", "supplement", "glue", "msgs")


def store_aggregate(run: Run) -> None:
    rows = [row for suite in AGGREGATED for row in run.store.scores(suite)]
    trained = [row for row in rows if row.plan is None]
    run.store.replace_scores(BABYLM, babylm_rows(trained))


def aggregate_lines(run: Run) -> str:
    rows = Rows(run.store.scores(BABYLM)).where(seed=None)
    weights = " + ".join(f"{weight:g} {part}" for part, weight in WEIGHTS.items())
    body = []
    for arm, own in rows.by("arm").items():
        total, files = own.one(metric="aggregate"), {part: own.value(task=part, metric="files") or 0 for part in FILES}
        shown = ABSENT if total is None else ONE.text(total) + (", partial" if files != FILES else "")
        parts = [_describe_part(own.one(task=part, metric="part"), files[part], FILES[part]) for part in FILES]
        body.append((str(arm), shown, *parts))
    lines = Table(("arm", "aggregate", *FILES), tuple(body)).lines()
    head = f"BabyLM's aggregate of 2023, {weights}, in points:"
    return "\n".join([head, *(f"  {line}" for line in lines)]) if lines else ""


def _describe_part(part: Score | None, files: float, count: int) -> str:
    details = [] if files == count else [f"{files:.0f} of {count} files"]
    if part is not None and part.documents is not None:
        details.append(f"{part.documents:,} examples")
    value = ABSENT if part is None else ONE.text(part)
    return f"{value} ({', '.join(details)})" if details else value
