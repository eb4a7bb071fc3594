"""Minimal pairs of an evaluation: how many, scored with all layer weights and without some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.errors import ModelError
from layerwise.measure.interventions.edge_cuts import DRAWS
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.plan import EdgeCut
from layerwise.results import Run
from layerwise.results.vocabulary import ATTRIBUTION, EDGES
from layerwise.runner.minimal_pairs import ScoringOptions, discard, evaluate_models
from layerwise.runner.study import Study
from layerwise.studies.evaluate.edges import (
    ORIGIN,
    check_phenomena,
    evaluate_without_edges,
    find_wiring,
    has_layer_weights,
)
from layerwise.studies.evaluate.minutes import chosen_limit, record_limit, recorded_limit, resolutions
from layerwise.studies.evaluate.subjects import Subjects
from layerwise.studies.evaluate.suites import SuiteChoice


def find_weighted(subjects: Subjects, pairs: Sequence[PairSet]) -> tuple[str, ...]:
    """Return the labels of the models with learned layer weights.

    Raises `ModelError` if there is none, and `DataError` for too few pairs of a phenomenon.
    """
    check_phenomena(pairs)
    if subjects.stack is None:
        labels = [label for label, model in subjects.models.items() if has_layer_weights(Path(model.location))]
    else:
        labels = [] if find_wiring(subjects.stack.model) is None else list(subjects.models)
    if not labels:
        raise ModelError(f"{', '.join(subjects.models)} has no learned layer weights; {ORIGIN}")
    return tuple(labels)


def describe(
    subjects: Subjects, selection: SuiteChoice, cuts: Sequence[EdgeCut], weighted: Sequence[str]
) -> Iterator[str]:
    """Yield what is scored, in sentences."""
    count = len(subjects.models)
    yield f"{count} model{'s' * (count != 1)}: {', '.join(subjects.models)}"
    for each in selection.pairs:
        yield f"{each.suite}: {len(each.pairs):,} pairs"
    if cuts:
        passes = 1 + len(cuts) * (1 + DRAWS)
        sentences = 2 * len(weighted) * passes * sum(len(each.pairs) for each in selection.pairs)
        yield (
            f"without edges: {len(cuts)} conditions of {len(weighted)} models, each with {DRAWS} random cuts: at most "
            f"{sentences:,} sentences more"
        )


def discard_rows(run: Run, selection: SuiteChoice, cuts: Sequence[EdgeCut]) -> None:
    """Discard the rows of the suites that are named."""
    discard(selection.pairs, run)
    for measure in (*([EDGES] if cuts else []), *([ATTRIBUTION] if selection.attributes else [])):
        run.store.replace_scores(measure, [])


def limit_pairs(
    study: Study,
    subjects: Subjects,
    selection: SuiteChoice,
    minutes: float,
    began: float,
    options: ScoringOptions,
    *,
    overwrite: bool,
) -> SuiteChoice:
    """Keep as many pairs of each paradigm as fit the minutes since `began`, and report the effect that they resolve."""
    limit = None if overwrite else recorded_limit(study.run, minutes)
    if limit is None:
        first = next(iter(subjects.models))
        limit, text = chosen_limit(
            minutes,
            lambda: SentenceScorer.of(*subjects.open(first)),
            selection.pairs,
            models=len(subjects.models),
            began=began,
            temperature=options.temperature,
            too_long=options.too_long,
        )
        record_limit(study.run, minutes, limit)
        study.reporter.log(text)
    limited = replace(selection, pairs=tuple(each.first(limit) for each in selection.pairs))
    for text in resolutions(limited.pairs):
        study.reporter.log(text)
    return limited


def score_pairs(study: Study, subjects: Subjects, pairs: Sequence[PairSet], options: ScoringOptions) -> None:
    """Score every model on every suite; stored paradigms are kept."""
    evaluate_models(subjects.list_models(), pairs, options, study.run, progress=study.reporter.progress)


def score_without_edges(
    study: Study,
    subjects: Subjects,
    pairs: Sequence[PairSet],
    cuts: Sequence[EdgeCut],
    weighted: tuple[str, ...],
    options: ScoringOptions,
    *,
    seed: int,
) -> None:
    """Score the models with layer weights again without the edges of each cut."""
    if cuts:
        evaluate_without_edges(
            subjects.list_models(weighted),
            pairs,
            cuts,
            options,
            study.run,
            seed=seed,
            progress=study.reporter.progress,
        )
