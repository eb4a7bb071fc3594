"""The steps of edges by phenomenon: every edge cut alone, for minimal pairs and for features of mixed signals.

Pairs are scored with the model as it is. For MSGS and mixed signals of our own a copy of the model is fine-tuned on
each task with its layer weights held, so that the edges are those of the pretraining, and the edges of the fine-tuned
model are cut. One fine-tuning stands behind the units of a task: their interval says nothing of another one.

What an analysis prints is here as well: the edges with the largest effect, and what a cut costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerwise.data.suites.classification import Labelled, Task
from layerwise.data.suites.generated_msgs import LINGUISTIC, SURFACE
from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.data.text.passages import Passage
from layerwise.errors import DataError, ModelError
from layerwise.experiments.diagnosis.config import MSGS, LayerWeightAnalysis
from layerwise.experiments.engines.call import MeasureUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps, UnitSession
from layerwise.experiments.evaluation.config import Evaluation
from layerwise.experiments.evaluation.suites import digest_of_suites, fine_tuned_tasks, pair_sets
from layerwise.experiments.layer_weights.models import WeightedModel, open_weighted, weighted_models
from layerwise.experiments.opening import described
from layerwise.experiments.options.training import changed
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.training_runs import TrainedModel, manifest_of
from layerwise.measure.interventions.edge_phenomena import (
    LEVEL,
    EdgeMargins,
    MarginEvaluation,
    Phenomenon,
    confirmed_edges,
    measured,
    phenomenon_rows,
)
from layerwise.measure.interventions.edge_pruning import Ranked, Wired, alpha_rows, cut, wired_as
from layerwise.measure.language.pseudo_likelihood import SentenceScorer, log_likelihoods
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.statistics import Numbers
from layerwise.models.elc.encoder import ElcPreTrainedModel
from layerwise.models.elc.wiring import ElcWiring
from layerwise.plan import Edge
from layerwise.results import Manifest, Rows, Run, Score
from layerwise.results.run import is_run
from layerwise.results.vocabulary import EDGE_PHENOMENA, FEWEST_UNITS, PRUNED, RANDOM, SIZE, edge_name
from layerwise.stack import Stack, weight_hash
from layerwise.stack.inputs import evaluating
from layerwise.train.fine_tuning import FineTuningConfig, fine_tune

FAMILY = "layer-weights"
PAIRS, SENTENCES = 40, 200
"""Pairs of a paradigm and test sentences of a task, unless `--limit` says otherwise."""

FINE_TUNING = FineTuningConfig(batch_size=32, epochs=4, patience=2, length=48, frozen=(".scalars",))


def edge_phenomena(config: LayerWeightAnalysis, reporter: Reporter) -> Steps:
    """Cut every edge of every finished model in a run, or of one model, for every phenomenon of the suites.

    Rows of other suites stay in the run. Raises `RunError` for a run without a model with layer weights, `ModelError`
    for a model without them, and `DataError` for suites that cannot be read.
    """
    pairs, tasks = _suites(config)
    _check_units(pairs, tasks)
    path = Path(config.model).expanduser()
    opened = partial(open_weighted, device=config.device, dtype=config.dtype)

    def of_run(each: TrainedModel) -> WeightedModel:
        return replace(opened(each.folder), arm=each.arm, seed=each.seed)

    models: dict[str, Callable[[], WeightedModel]]
    folder = path if is_run(path) else None
    if folder is not None:
        models = {label: partial(of_run, each) for label, each in weighted_models(folder).items()}
        manifest = manifest_of(folder)
    else:
        reporter.log(f"loading {config.model}")
        model = opened(path)
        manifest = _manifest(config, model, pairs, tasks)
        models = {"all": lambda: model}

    def says() -> Iterator[str]:
        yield f"{len(models)} model{'s' * (len(models) != 1)} with learned layer weights: {', '.join(models)}"
        for each in pairs:
            phenomena = len({pair.phenomenon for pair in each.pairs})
            yield f"{each.suite}: {len(each.pairs):,} pairs of {phenomena} phenomena"
        if tasks:
            yield f"fine-tuned tasks, their layer weights held: {', '.join(task.name for task in tasks)}"
        scored, sentences = sum(len(each.pairs) for each in pairs), sum(len(task.test) for task in tasks)
        yield (
            f"cost: for each model one pass over {scored:,} pairs and {sentences:,} sentences for every edge, and "
            f"{len(tasks)} fine-tunings"
        )

    def measure(session: UnitSession) -> list[Score]:
        rows: list[Score] = []
        alphas: list[Score] = []
        for open_model in models.values():
            model = open_model()
            alphas += alpha_rows(model.arm, model.seed, model.wired.edges())
            own = _measured(config, pairs, tasks, model, reporter)
            if len(models) > 1:
                own = [replace(row, arm=model.arm, seed=model.seed) for row in own]
            rows += own
        suites = {row.condition for row in rows}
        others = [row for row in session.store.scores(EDGE_PHENOMENA) if row.condition not in suites]
        return [*others, *rows, *(alphas if folder is None else [])]

    yield Outline(manifest, says, folder=folder, results=_tables, lasts=False)
    return Completed((yield from MeasureUnit(measure)))


def _tables(run: Run) -> Sequence[str]:
    """The edges that are confirmed to carry a phenomenon, for each suite."""
    rows = Rows(run.store.scores(EDGE_PHENOMENA))
    return [phenomena_table(suite, rows.where(condition=suite)) for suite in rows.axis("condition")]


def _manifest(
    config: LayerWeightAnalysis, model: WeightedModel, pairs: Sequence[PairSet], tasks: Sequence[Task]
) -> Manifest:
    examples = sum(len(each.pairs) for each in pairs) + sum(len(task.test) for task in tasks)
    return described(
        model.stack,
        weight_hash(model.stack.model),
        corpus="; ".join(config.suite),
        corpus_hash=digest_of_suites(pairs, tasks),
        documents=examples,
        tokens=examples,
        window=1,
        families=(FAMILY,),
        tasks=config.suite,
        seed=config.seed,
    )


def _measured(
    config: LayerWeightAnalysis,
    pair_sets: Sequence[PairSet],
    tasks: Sequence[Task],
    model: WeightedModel,
    reporter: Reporter,
) -> list[Score]:
    """The edges of one model, for the phenomena of every suite."""
    depth, rows = model.wired.edges().depth, list[Score]()
    edges = _edges(model.wired)
    for pairs in pair_sets:
        reporter.log(f"{model.folder}: {pairs.suite}")
        phenomena = pair_margins(model.stack, pairs)
        without = partial(_without, model.wired)
        margins = measured(edges, phenomena, without, _progress(reporter, f"{pairs.suite}: cutting each edge"))
        rows += phenomenon_rows(pairs.suite, edges, margins, depth)
    for suite in dict.fromkeys(task.measure for task in tasks):
        own = [_of_task(config, model, task, edges, reporter) for task in tasks if task.measure == suite]
        rows += phenomenon_rows(suite, edges, own, depth)
    return rows


def _of_task(
    config: LayerWeightAnalysis, model: WeightedModel, task: Task, edges: Sequence[Edge], reporter: Reporter
) -> EdgeMargins:
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
        without = partial(_without, wired)
        results.extend(measured(edges, phenomena, without, _progress(reporter, f"{task.name}: cutting each edge")))

    settings = replace(FINE_TUNING, learning_rates=(config.learning_rate,))
    fine_tune(
        model.folder,
        task,
        settings,
        config.seed,
        device=config.device,
        inspect_model=inspect_model,
        progress=lambda step, steps: reporter.progress(f"fine-tuning on {task.name}", step / steps),
    )
    return results[0]


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


def _without(wired: Wired, edge: Edge) -> AbstractContextManager[None]:
    return wired_as(wired, cut(wired.edges(), (edge,), 1, renormalise=wired.renormalises))


def _progress(reporter: Reporter, label: str) -> Callable[[int, int], None]:
    return lambda done, total: reporter.progress(label, done / total)


FEATURES = {
    **dict.fromkeys((*LINGUISTIC, "irregular_form", "morphology"), True),
    **dict.fromkeys((*SURFACE, "title_case", "absolute_token_position", "relative_token_position"), False),
}
"""The features of MSGS and of mixed signals of our own: whether each is linguistic."""

CONTROL = "control "
_BATCH = 64
_ROUNDING = 3 * float(np.finfo(np.float32).eps)


def pair_margins(stack: Stack, pairs: PairSet) -> list[tuple[Phenomenon, MarginEvaluation]]:
    """The pairs of a suite by phenomenon: the log-likelihood of the better text less that of the other, in nats."""
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer beside it, so it cannot read pairs")
    scorer = SentenceScorer.of(stack.model, stack.tokenizer)
    by_phenomenon: dict[str, list[MinimalPair]] = {}
    for pair in pairs.pairs:
        by_phenomenon.setdefault(pair.phenomenon, []).append(pair)
    return [
        (Phenomenon(name, tuple(pair.paradigm for pair in members)), partial(_preferred, scorer, members))
        for name, members in by_phenomenon.items()
    ]


def _preferred(scorer: SentenceScorer, pairs: list[MinimalPair]) -> Numbers:
    passages = [
        passage
        for pair in pairs
        for passage in (Passage(pair.good, pair.good_start), Passage(pair.bad, pair.bad_start))
    ]
    values = log_likelihoods(scorer, passages).values
    good, bad = values[0::2], values[1::2]
    # What is within rounding is no preference, as where pairs are counted.
    rounding = _ROUNDING * np.maximum(np.abs(good), np.abs(bad))
    return np.where(np.abs(good - bad) > rounding, good - bad, 0.0)


def label_margins(model: Any, tokenizer: Any, task: Task, length: int) -> tuple[Phenomenon, MarginEvaluation]:
    """The test sentences of a task: the logit of the right label less the highest of the others, in nats.

    A control task is called by its feature, which is linguistic or surface. The right label of an ambiguous task is the
    linguistic one, so there a margin above 0 is a preference for structure.
    """
    name = task.name.removeprefix(CONTROL)
    kind = FEATURES.get(name) if task.name.startswith(CONTROL) else None
    phenomenon = Phenomenon(name if kind is not None else task.name, (task.name,) * len(task.test), kind)
    return phenomenon, partial(_labelled, model, tokenizer, task.test, length)


def _labelled(model: Any, tokenizer: Any, examples: tuple[Labelled, ...], length: int) -> Numbers:
    margins = []
    with evaluating(model), torch.inference_mode():
        for start in range(0, len(examples), _BATCH):
            batch = examples[start : start + _BATCH]
            texts = [each.text for each in batch]
            inputs = tokenizer(texts, truncation=True, max_length=length, padding=True, return_tensors="pt")
            inputs = {key: tensor.to(model.device) for key, tensor in inputs.items() if key != "token_type_ids"}
            logits = exact_on_cpu(model(**inputs).logits).numpy()
            labels = np.array([each.label for each in batch])
            right = logits[np.arange(len(batch)), labels]
            logits[np.arange(len(batch)), labels] = -np.inf
            margins.append(right - logits.max(axis=1))
    return np.concatenate(margins)


SHOWN = 8
"""Edges that are printed, of those with the largest effect."""


def edges_table(ranked: Ranked, depth: int) -> str:
    """The edges with the largest effect: weight, effect of cutting it in nats, interval and p-value."""
    rows = [("edge", "weight", "effect (nats)", "95 %", "p")]
    for index in ranked.effect.value.argsort()[::-1][:SHOWN]:
        low, high = ranked.effect.low[index], ranked.effect.high[index]
        rows.append(
            (
                ranked.edges[index].name(depth),
                f"{ranked.weights[index]:.3f}",
                f"{ranked.effect.value[index]:+.4f}",
                f"{low:+.4f} to {high:+.4f}",
                f"{ranked.p_adjusted[index]:.2g}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def agreement_sentence(rows: Sequence[Score]) -> str:
    """How far the size of an edge says what its effect is."""
    row = next((row for row in rows if row.metric == "rank_correlation"), None)
    if row is None:
        return "there are too few edges to say whether size and effect agree"
    return f"size and effect: rank correlation {row.value:.2f} ({row.low:.2f} to {row.high:.2f}, p {row.p:.2g})"


def cut_sentences(rows: Sequence[Score]) -> str:
    """What is left after a cut, and what it costs beside as many edges cut by size and at random."""
    left = Rows(rows).where(condition=PRUNED)
    pruned = left.where(against=None).along("metric")
    random, sized = (left.where(metric="difference", against=way)[0] for way in (RANDOM, SIZE))
    lost = pruned["difference"]
    return "\n".join(
        (
            f"kept {pruned['edges'].value:.0f} edges ({pruned['kept'].value:.0%}), live states "
            f"{pruned['live_before'].value:.0f} -> {pruned['live_after'].value:.0f}, "
            f"{pruned['unheard'].value:.0f} layers need not run",
            f"loss {lost.value:+.4f} nats ({lost.low:+.4f} to {lost.high:+.4f}) on examples that did not choose",
            f"as many cut by size {sized.value:+.4f}, at random {random.value:+.4f} ({random.low:+.4f} to "
            f"{random.high:+.4f}, p {random.p:.2g})",
        )
    )


def phenomena_table(suite: str, own: Rows) -> str:
    """The edges that are confirmed to carry a phenomenon of a suite, of whose rows these are, and what was asked."""
    tested = own.where(metric="effect")
    confirmed = confirmed_edges(own)
    phenomena = len({(row.task, row.arm, row.seed) for row in tested})
    edges = len({edge_name(row) for row in tested})
    detectable = np.median([row.mde for row in tested if row.mde is not None]) if tested else 0.0
    lines = [
        f"{suite}: {len(confirmed)} of {edges} edges x {phenomena} phenomena have an effect that fresh units confirm "
        f"(Holm {LEVEL:g}; effects of {detectable:.2f} nats would be chosen with 80 % power)"
    ]
    for row in confirmed[:SHOWN]:
        lines.append(
            f"  {edge_name(row):8} {_named(row):32} {row.value:+.3f} nats ({row.low:+.3f} to "
            f"{row.high:+.3f}), p {row.p_adjusted:.2g}"
        )
    contrast = [row for row in own.where(metric="contrast") if (row.p_adjusted or 1) < LEVEL]
    for row in sorted(contrast, key=lambda row: -abs(row.value))[:SHOWN]:
        side = "linguistic" if row.value > 0 else "surface"
        lines.append(
            f"  {edge_name(row):8} serves {side} features more: {row.value:+.3f} ({row.low:+.3f} to {row.high:+.3f})"
        )
    for row in own.where(metric="rank_correlation"):
        lines.append(
            f"  depth of the reader and linguistic - surface: rank correlation {row.value:+.2f} ({row.low:+.2f} to "
            f"{row.high:+.2f}, p {row.p:.2g})"
        )
    return "\n".join(lines)


def _named(row: Score) -> str:
    """The phenomenon, and the model where there are several."""
    return row.task if row.arm is None else f"{row.task} of {row.arm}/{row.seed}"
