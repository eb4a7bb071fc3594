"""Edges by phenomenon, ready to be measured: every edge cut alone, for minimal pairs and for features of mixed signals.

Pairs are scored with the model as it is. For MSGS and mixed signals of our own a copy of the model is fine-tuned on
each task with its layer weights held, so that the edges are those of the pretraining, and the edges of the fine-tuned
model are cut. One fine-tuning stands behind the units of a task: their interval says nothing of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path

from layerwise.data.suites.classification import Task
from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.errors import DataError, ModelError, RunError
from layerwise.experiments.evaluation.config import Evaluation
from layerwise.experiments.evaluation.suites import digest_of_suites, fine_tuned_tasks, pair_sets
from layerwise.experiments.experiment import Prepared
from layerwise.experiments.layer_weights.config import MSGS, LayerWeightAnalysis
from layerwise.experiments.layer_weights.margins import label_margins, pair_margins
from layerwise.experiments.layer_weights.models import ORIGIN, WeightedModel, has_layer_weights, open_weighted
from layerwise.experiments.layer_weights.sentences import phenomena_table
from layerwise.experiments.options.training import changed
from layerwise.experiments.provenance import described
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.trainings import finished_models
from layerwise.measure.interventions.edge_phenomena import EdgeMargins, measured, phenomenon_rows
from layerwise.measure.interventions.edge_pruning import Wired, alpha_rows, cut, wired_as
from layerwise.models.elc.encoder import ElcPreTrainedModel
from layerwise.models.elc.wiring import ElcWiring
from layerwise.plan import Edge
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score
from layerwise.results.run import is_run
from layerwise.results.selection import Rows
from layerwise.results.units import FEWEST_UNITS
from layerwise.results.vocabulary import ALPHA, EDGE_PHENOMENA
from layerwise.stack import weight_hash
from layerwise.train.finetune.fine_tuning import FineTuningConfig, fine_tune

FAMILY = "layer-weights"
PAIRS, SENTENCES = 40, 200
"""Pairs of a paradigm and test sentences of a task, unless `--limit` says otherwise."""

FINE_TUNING = FineTuningConfig(batch_size=32, epochs=4, patience=2, length=48, frozen=(".scalars",))


class PreparedEdgePhenomena(Prepared):
    """The layer weights of every finished model in a run, or of one model, and the suites that are read.

    Raises `RunError` for a run without such a model, `ModelError` for a model without layer weights, and `DataError`
    for suites that cannot be read.
    """

    def __init__(self, config: LayerWeightAnalysis, reporter: Reporter) -> None:
        self.config = config
        self.pairs, self.tasks = _suites(config)
        _check_units(self.pairs, self.tasks)
        path = Path(config.model).expanduser()
        self._models: dict[str, Callable[[], WeightedModel]]
        if is_run(path):
            models = {each.label: each.folder for each in finished_models(path) if has_layer_weights(each.folder)}
            if not models:
                raise RunError(f"{path} holds no finished model with learned layer weights; {ORIGIN}")
            with Run.open(path) as run:
                self.manifest = run.manifest
            self.folder = path
            self._models = {label: partial(self._open, folder) for label, folder in models.items()}
        else:
            reporter.log(f"loading {config.model}")
            model = self._open(path)
            self.manifest = self._manifest(model)
            self._models = {"all": lambda: model}

    def _open(self, folder: Path) -> WeightedModel:
        return open_weighted(folder, device=self.config.device, dtype=self.config.dtype)

    def _manifest(self, model: WeightedModel) -> Manifest:
        examples = sum(len(each.pairs) for each in self.pairs) + sum(len(task.test) for task in self.tasks)
        return described(
            model.stack, weight_hash(model.stack.model), corpus="; ".join(self.config.suite),
            corpus_hash=digest_of_suites(self.pairs, self.tasks), documents=examples, tokens=examples, window=1,
            families=(FAMILY,), tasks=self.config.suite, seed=self.config.seed,
        )  # fmt: skip

    def describe(self) -> Iterator[str]:
        """The models, the suites, and what is scored and fine-tuned for every edge."""
        count = len(self._models)
        yield f"{count} model{'s' * (count != 1)} with learned layer weights: {', '.join(self._models)}"
        for each in self.pairs:
            phenomena = len({pair.phenomenon for pair in each.pairs})
            yield f"{each.suite}: {len(each.pairs):,} pairs of {phenomena} phenomena"
        if self.tasks:
            yield f"fine-tuned tasks, their layer weights held: {', '.join(task.name for task in self.tasks)}"
        pairs, sentences = (sum(counts) for counts in ((len(each.pairs) for each in self.pairs), self._sentences()))
        yield (
            f"cost: for each model one pass over {pairs:,} pairs and {sentences:,} sentences for every edge, and "
            f"{len(self.tasks)} fine-tunings"
        )

    def _sentences(self) -> Iterator[int]:
        return (len(task.test) for task in self.tasks)

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Cut every edge of every model for every phenomenon; rows of other suites stay in the run."""
        rows: list[Score] = []
        alphas: list[Score] = []
        for open_model in self._models.values():
            model = open_model()
            alphas += alpha_rows(model.arm, model.seed, model.wired.edges())
            own = self._measure(model, reporter)
            if len(self._models) > 1:
                own = [replace(row, arm=model.arm, seed=model.seed) for row in own]
            rows += own
        suites = {row.condition for row in rows}
        others = [row for row in run.store.scores(EDGE_PHENOMENA) if row.condition not in suites]
        run.store.replace_scores(EDGE_PHENOMENA, [*others, *rows])
        if self.folder is None:
            run.store.replace_scores(ALPHA, alphas)

    def _measure(self, model: WeightedModel, reporter: Reporter) -> list[Score]:
        depth, rows = model.wired.edges().depth, list[Score]()
        edges = _edges(model.wired)
        for pairs in self.pairs:
            reporter.log(f"{model.folder}: {pairs.suite}")
            phenomena = pair_margins(model.stack, pairs)
            without = partial(_without, model.wired, self.config.removal)
            margins = measured(edges, phenomena, without, _progress(reporter, f"{pairs.suite}: cutting each edge"))
            rows += phenomenon_rows(pairs.suite, edges, margins, depth)
        for suite in dict.fromkeys(task.measure for task in self.tasks):
            own = [self._of_task(model, task, edges, reporter) for task in self.tasks if task.measure == suite]
            rows += phenomenon_rows(suite, edges, own, depth)
        return rows

    def _of_task(self, model: WeightedModel, task: Task, edges: Sequence[Edge], reporter: Reporter) -> EdgeMargins:
        """The margins on the test sentences of one task, of a copy of the model that is fine-tuned on it."""
        results: list[EdgeMargins] = []

        def inspect_model(tuned: object, tokenizer: object) -> None:
            if not isinstance(tuned, ElcPreTrainedModel):
                raise ModelError(
                    f"{model.folder} loses its layer weights in fine-tuning, which an ELC-BERT keeps: ask it minimal "
                    "pairs (--suite pairs), or give an ELC-BERT"
                )
            wired = ElcWiring(tuned)
            phenomena = [label_margins(tuned, tokenizer, task, FINE_TUNING.length)]
            without = partial(_without, wired, self.config.removal)
            results.extend(measured(edges, phenomena, without, _progress(reporter, f"{task.name}: cutting each edge")))

        settings = replace(FINE_TUNING, learning_rates=(self.config.learning_rate,))
        fine_tune(
            model.folder, task, settings, self.config.seed, device=self.config.device, inspect_model=inspect_model,
            progress=lambda step, steps: reporter.progress(f"fine-tuning on {task.name}", step / steps),
        )  # fmt: skip
        return results[0]

    def results(self, run: Run) -> Sequence[str]:
        """The edges that are confirmed to carry a phenomenon, for each suite."""
        rows = Rows(run.store.scores(EDGE_PHENOMENA))
        return [phenomena_table(suite, rows.where(condition=suite)) for suite in rows.axis("condition")]


def _suites(config: LayerWeightAnalysis) -> tuple[tuple[PairSet, ...], tuple[Task, ...]]:
    """The pairs and the tasks of the suites, as an evaluation reads them."""
    pairs = tuple(name for name in config.suite if name not in MSGS)
    tuned = tuple(name for name in config.suite if name in MSGS)
    files = changed(data=config.data)
    sets: tuple[PairSet, ...] = ()
    tasks: tuple[Task, ...] = ()
    if pairs:
        more = changed(password=config.password) | (files if set(pairs) - {"pairs"} else {})
        limit = config.limit or PAIRS
        sets = pair_sets(Evaluation(model=config.model, suite=pairs, limit=limit, seed=config.seed, **more))
    if tuned:
        more = {"tasks": config.tasks} | (files if "msgs" in tuned else {})
        read = fine_tuned_tasks(Evaluation(model=config.model, suite=tuned, seed=config.seed, **more))
        tasks = tuple(task.limited(test=config.limit or SENTENCES, seed=config.seed) for task in read)
    return sets, tasks


def _check_units(pairs: Sequence[PairSet], tasks: Sequence[Task]) -> None:
    """Raise `DataError` where a phenomenon has too few pairs, or a task too few sentences, for two intervals."""
    needed = 2 * FEWEST_UNITS
    units = [(each.phenomenon, each.paradigm, "pairs") for suite in pairs for each in suite.pairs]
    units += [(task.name, task.name, "sentences") for task in tasks for _ in task.test]
    paradigms: dict[tuple[str, str], list[str]] = {}
    for phenomenon, paradigm, unit in units:
        paradigms.setdefault((phenomenon, unit), []).append(paradigm)
    few = {key: names for key, names in paradigms.items() if len(names) < needed}
    if few:
        (phenomenon, unit), names = next(iter(few.items()))
        limit = max(ceil(needed / len(set(each))) for each in few.values())
        raise DataError(
            f"{phenomenon} has {len(names)} {unit}; one half chooses edges, the other confirms them, and an interval "
            f"needs {FEWEST_UNITS} in each: use --limit {limit} or more, or leave out what has fewer"
        )


def _edges(wired: Wired) -> list[Edge]:
    """The edges that can be cut: those of readers that read something else too."""
    wiring = wired.edges()
    return [edge for edge in wiring if len(wiring.rows[edge.reader]) > 1]


def _without(wired: Wired, removal: str, edge: Edge) -> AbstractContextManager[None]:
    if removal == "zero":
        if not isinstance(wired, ElcWiring):
            raise ModelError("only the layer weights of an ELC-BERT are set to zero alone: use --removal renormalise")
        return wired.zeroed(edge)
    return wired_as(wired, cut(wired.edges(), (edge,), 1, renormalise=wired.renormalises))


def _progress(reporter: Reporter, label: str) -> Callable[[int, int], None]:
    return lambda done, total: reporter.progress(label, done / total)
