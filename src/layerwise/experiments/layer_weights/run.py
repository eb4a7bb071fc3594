"""Learned layer weights, ready to be measured: shown, their edges ranked and cut, and what is left evaluated.

Edges are chosen on one set of examples and evaluated on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from layerwise.data.text.corpus import Corpus
from layerwise.errors import ModelError, RunError
from layerwise.experiments.experiment import Prepared
from layerwise.experiments.layer_weights.config import LayerWeightAnalysis
from layerwise.experiments.layer_weights.examples import EdgeExamples, examples_of
from layerwise.experiments.layer_weights.models import ORIGIN, WeightedModel, has_layer_weights, open_weighted
from layerwise.experiments.layer_weights.picture import weight_map
from layerwise.experiments.layer_weights.sentences import agreement_sentence, cut_sentences, edges_table
from layerwise.experiments.layer_weights.sparse import write_sparse
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import describe_model
from layerwise.experiments.trainings import finished_models
from layerwise.measure.interventions.edge_pruning import (
    DRAWS,
    Ranked,
    alpha_rows,
    prune,
    pruned_rows,
    rank,
    ranking_rows,
)
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.run import is_run
from layerwise.results.vocabulary import ALPHA, EDGES

Opened = tuple[WeightedModel, EdgeExamples]


class PreparedLayerWeights(Prepared):
    """The layer weights of every finished model in a run, or of a single model whose examples are read.

    Raises `RunError` for a run without such a model, and for one with several of which one is to be written;
    `ModelError` for a model without layer weights; and what `examples_of` raises.
    """

    def __init__(self, config: LayerWeightAnalysis, reporter: Reporter, corpus: Corpus | None = None) -> None:
        self.config = config
        self._reporter = reporter
        self._corpus = corpus
        self._models: dict[str, Callable[[], Opened]]
        path = Path(config.model).expanduser()
        self.single: Opened | None = None
        if is_run(path):
            self._take_run(path)
        else:
            reporter.log(f"loading {config.model}")
            opened = self._open(path)
            self.single = opened
            self.manifest = opened[1].manifest
            self._models = {"all": lambda: opened}

    def _take_run(self, folder: Path) -> None:
        models = {each.label: each.folder for each in finished_models(folder) if has_layer_weights(each.folder)}
        if not models:
            raise RunError(f"{folder} holds no finished model with learned layer weights; {ORIGIN}")
        if self.config.output is not None and len(models) > 1:
            raise RunError(
                f"{folder} holds {len(models)} models with learned layer weights, and one is written: give its folder, "
                f"such as {next(iter(models.values()))}"
            )
        with Run.open(folder) as run:
            self.manifest = run.manifest
        self.folder = folder
        self._models = {label: partial(self._open_of_run, model) for label, model in models.items()}

    def _open(self, folder: Path) -> Opened:
        model = open_weighted(folder, device=self.config.device, dtype=self.config.dtype)
        return model, examples_of(model, self.config, self._reporter, self._corpus)

    def _open_of_run(self, folder: Path) -> Opened:
        model = open_weighted(folder, device=self.config.device, dtype=self.config.dtype)
        # The data of a run are those of the model that its trainings began from.
        model.stack.source = replace(model.stack.source, name=self.manifest.model)
        return model, examples_of(model, self.config, self._reporter, self._corpus)

    def describe(self) -> Iterator[str]:
        """The models, and how often they are run on the examples."""
        count = len(self._models)
        cut = f", and {DRAWS + 2} for what a cut leaves" if self.config.cuts else ""
        if self.single is None:
            yield f"{count} model{'s' * (count != 1)} with learned layer weights: {', '.join(self._models)}"
            yield f"cost: for each model one pass over its held-out examples for every edge{cut}"
            return
        model = self.single[0]
        yield describe_model(model.stack)
        yield f"cost: {len(model.wired.edges())} passes over the held-out examples, one for every edge{cut}"

    def check(self, folder: Path) -> None:
        """Raise `ModelError` where something is at `--output` already."""
        output = self.config.output
        if output is not None and output.exists():
            raise ModelError(f"{output} is there already; choose another --output, or replace it with --overwrite")

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Show, rank and cut the weights of every model, and store all rows when the last model is done."""
        rows: list[Score] = []
        for open_model in self._models.values():
            model, examples = open_model()
            own = self._measure(model, examples, reporter)
            if len(self._models) > 1:
                own = [replace(row, arm=model.arm, seed=model.seed) for row in own]
            rows += [*own, *alpha_rows(model.arm, model.seed, model.wired.edges())]
        for measure in (EDGES, ALPHA):
            run.store.replace_scores(measure, [row for row in rows if row.measure == measure])

    def _measure(self, model: WeightedModel, examples: EdgeExamples, reporter: Reporter) -> list[Score]:
        edges, seed = model.wired.edges(), self.config.seed
        reporter.result(f"{model.folder}: {len(edges)} edges, {edges.live_states()} live states")
        reporter.result(weight_map(edges))
        ranked = rank(model.wired, examples.choosing, seed=seed, progress=_progress(reporter, "cutting each edge"))
        rows = ranking_rows(ranked, examples.choosing(), seed=seed, depth=edges.depth)
        reporter.result(edges_table(ranked, edges.depth))
        reporter.result(agreement_sentence(rows))
        if self.config.cuts:
            rows += self._cut(model, examples, ranked, reporter)
        return rows

    def _cut(
        self, model: WeightedModel, examples: EdgeExamples, ranked: Ranked, reporter: Reporter
    ) -> list[Score]:  # fmt: skip
        config = self.config
        reporter.log("choosing what to cut")
        left = prune(
            model.wired, examples.choosing, keep=config.keep, tolerance=config.tolerance, rounds=config.rounds,
            ranked=ranked, seed=config.seed,
        )  # fmt: skip
        rows = pruned_rows(
            model.wired, left, ranked, examples.evaluation, seed=config.seed,
            progress=_progress(reporter, "cutting as many otherwise"),
        )  # fmt: skip
        reporter.result(weight_map(left))
        reporter.result(cut_sentences(rows))
        if config.output is not None:
            reporter.result(write_sparse(model, left, config.output))
        return rows


def _progress(reporter: Reporter, label: str) -> Callable[[int, int], None]:
    return lambda done, total: reporter.progress(label, done / total)
