"""Score minimal pairs after some edges of learned layer weights are removed, compared with the original model.

An edge is the weight with which a layer reads an earlier state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import nn

from layerwise.data.stored_files import CONFIG, read_config
from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.errors import DataError, ModelError
from layerwise.measure.interventions.edge_cuts import EdgeModel, edge_cut_rows
from layerwise.measure.language.minimal_pairs import margins
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.measure.weights.layer_weights import alpha_rows
from layerwise.models.elc.encoder import ElcPreTrainedModel
from layerwise.models.elc.wiring import ElcWiring
from layerwise.plan import EdgeCut
from layerwise.results import Rows, Run
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import ALL, ALPHA, EDGES, MIN_UNITS, RANDOM
from layerwise.runner.minimal_pairs import EvaluatedModel, ScoringOptions, describe_setting
from layerwise.studies.evaluate.subjects import Subjects
from layerwise.train import layer_mixing

ORIGIN = (
    "Pass a model trained with `layerwise train robust wiring-identity --model MODEL`, or an ELC-BERT other than ltg."
)


def find_weighted(subjects: Subjects, suites: Sequence[PairSet]) -> tuple[str, ...]:
    for each in suites:
        name, count = Counter(pair.phenomenon for pair in each.pairs).most_common()[-1]
        if count < MIN_UNITS:
            raise DataError(
                f"--without-edges requires {MIN_UNITS} pairs of each phenomenon, but {each.suite} has {count} of "
                f"{name}. Raise --limit, or remove the suite."
            )
    if subjects.stack is None:
        labels = [label for label, model in subjects.models.items() if has_layer_weights(Path(model.location))]
    else:
        labels = [] if find_wiring(subjects.stack.model) is None else list(subjects.models)
    if not labels:
        raise ModelError(f"{', '.join(subjects.models)} has no learned layer weights. {ORIGIN}")
    return tuple(labels)


def has_layer_weights(folder: Path) -> bool:
    if (folder / CONFIG).is_file() and read_config(folder).get("model_type") == "layerwise-elc":
        return read_config(folder).get("variant") != "ltg"
    record = TrainingRecord.read(folder)
    return record is not None and record.recipe.get("extension") == "wiring"


def find_wiring(model: nn.Module) -> EdgeModel | None:
    if isinstance(model, ElcPreTrainedModel):
        return ElcWiring(model) if model.base_model.readers() else None
    return layer_mixing.of(model)


def evaluate_without_edges(
    models: Sequence[EvaluatedModel],
    suites: Sequence[PairSet],
    cuts: Sequence[EdgeCut],
    options: ScoringOptions,
    run: Run,
    *,
    seed: int,
    progress: Callable[[str, float], None],
) -> None:
    """Evaluate every model on every suite without the edges of each cut.

    Rows that are stored with the same settings are reused.
    """
    for pairs in suites:
        note = f"{pairs.suite}: seed {seed}, {describe_setting(pairs, options)}"
        notes = [each.text for each in run.store.notes(EDGES)]
        if note not in notes:
            run.store.replace_scores(EDGES, [row for row in run.store.scores(EDGES) if row.suite != pairs.suite])
            run.store.replace_notes(EDGES, [*(text for text in notes if not text.startswith(f"{pairs.suite}: ")), note])
    required = {cut.text for cut in cuts}
    for model in models:
        opened = None
        for pairs in suites:
            stored = run.store.scores(EDGES)
            others = [row for row in stored if not (model.has(row) and row.suite == pairs.suite)]
            if {row.condition for row in stored if row not in others} == required:
                continue
            opened = opened or model.open()
            wired = find_wiring(opened[0])
            if wired is None:
                raise ModelError(f"{model.variant} has no learned layer weights. {ORIGIN}")
            weights = run.store.scores(ALPHA)
            if not any(map(model.has, weights)):
                run.store.replace_scores(ALPHA, [*weights, *alpha_rows(model.variant, model.seed, wired.edges())])
            evaluate = partial(
                margins,
                SentenceScorer.from_model(*opened),
                pairs.pairs,
                temperature=options.temperature,
                too_long=options.too_long,
            )
            label = f"{model.variant}/{model.seed} {pairs.suite} without edges"
            rows = edge_cut_rows(
                pairs.suite, pairs.pairs, wired, cuts, evaluate, seed=seed, progress=partial(progress, label)
            )
            added = [replace(row, variant=model.variant, seed=model.seed) for row in rows]
            run.store.replace_scores(EDGES, [*others, *added])


def edges_table(run: Run, suite: str) -> str:
    rows = Rows(run.store.scores(EDGES)).where(suite=suite, task=ALL, metric="margin")
    lines = [f"{suite} without edges (change of the margin in nats; range for as many random edges):"]
    for row in rows.where(against=None):
        (random,) = rows.where(variant=row.variant, seed=row.seed, condition=row.condition, against=RANDOM)
        lines.append(
            f"  {f'{row.variant}/{row.seed}':16} {row.condition:12} {row.value:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"
            f"   p {row.p_adjusted:.2g}   random {random.value:+.3f} [{random.low:+.3f}, {random.high:+.3f}]"
        )
    return "\n".join(lines)
