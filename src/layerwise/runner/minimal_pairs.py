"""Evaluate models on minimal pairs.

The results of each paradigm are stored when they are computed, so that an evaluation can be resumed. For each suite, a
note in the run describes the pairs and settings. If they change, the suite is evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase

from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.errors import DataError
from layerwise.measure.language.minimal_pairs import (
    CHANCE,
    coverage,
    mean_accuracies,
    paradigm_rows,
    preferences,
    variant_rows,
)
from layerwise.measure.language.pseudo_likelihood import SentenceScorer, TooLong
from layerwise.results import Rows, Run, Score
from layerwise.results.vocabulary import ALL, PARADIGM
from layerwise.stack.placement import release_freed

Opened = tuple[nn.Module, PreTrainedTokenizerBase]
_LAST = "temperature"


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """The softmax temperature, the handling of sentences that are too long, and the dtype and device (`how`)."""

    temperature: float = 1.0
    too_long: TooLong = "refuse"
    how: str = ""


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """A model to evaluate. `open` loads the model and its tokenizer."""

    variant: str
    seed: int
    open: Callable[[], Opened]

    def has(self, row: Score) -> bool:
        return (row.variant, row.seed) == (self.variant, self.seed)


def evaluate_models(
    models: Sequence[EvaluatedModel],
    suites: Sequence[PairSet],
    options: ScoringOptions,
    run: Run,
    *,
    progress: Callable[[str, float], None] | None = None,
) -> None:
    """Evaluate every model on every suite, and store the scores of models and variants in `run`.

    `progress` is called with a label and the share of the work that is done.
    """
    names = [each.suite for each in suites]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"Suite names must be unique, got {repeated[0]!r} twice. Rename one of the files.")
    for pairs in suites:
        _begin(pairs, options, run)
    for model in models:
        opened: Opened | None = None
        for pairs in suites:
            if any(map(model.has, run.store.scores(pairs.suite, metric=_LAST))):
                continue
            opened = opened or model.open()
            _evaluate_model(opened, model, pairs, options, run, progress)
    for pairs in suites:
        rows = run.store.scores(pairs.suite)
        single_seeds = [row for row in rows if row.seed is not None]
        run.store.replace_scores(pairs.suite, [*single_seeds, *variant_rows(pairs.suite, single_seeds)])


def describe_setting(pairs: PairSet, options: ScoringOptions) -> str:
    text = (
        f"{pairs.origin}: {len(pairs.pairs):,} pairs (digest {pairs.digest[:8]}), temperature {options.temperature:g}"
    )
    if pairs.equal:
        text += f"; {pairs.equal} of them have two equal texts, which count as half right"
    if options.how:
        text += f"; {options.how}"
    return f"{text}. Sentences too long for a model are {'skipped' if options.too_long == 'skip' else 'refused'}."


def discard_rows(suites: Sequence[PairSet], run: Run) -> None:
    for pairs in suites:
        run.store.replace_scores(pairs.suite, [])


def _begin(pairs: PairSet, options: ScoringOptions, run: Run) -> None:
    text = describe_setting(pairs, options)
    if text not in [note.text for note in run.store.notes(pairs.suite)]:
        run.store.replace_scores(pairs.suite, [])
        run.store.replace_notes(pairs.suite, [text])


def _evaluate_model(
    opened: Opened,
    model: EvaluatedModel,
    pairs: PairSet,
    options: ScoringOptions,
    run: Run,
    progress: Callable[[str, float], None] | None,
) -> None:
    stored = run.store.scores(pairs.suite)
    others = [row for row in stored if not model.has(row)]
    rows = [row for row in stored if model.has(row) and row.kind == PARADIGM]
    done = {row.task for row in rows}
    scorer, paradigms = SentenceScorer.from_model(*opened), pairs.paradigms()
    identity: dict[str, Any] = {"variant": model.variant, "seed": model.seed}
    release_freed()
    for number, (name, members) in enumerate(paradigms.items()):
        if name in done:
            continue

        def report_progress(share: float, name: str = name, number: int = number) -> None:
            if progress is not None:
                label = f"{model.variant}/{model.seed} {pairs.suite}: {name}"
                progress(label, (number + share) / len(paradigms))

        how: dict[str, Any] = {"temperature": options.temperature, "too_long": options.too_long}
        rows += paradigm_rows(
            pairs.suite, members, preferences(scorer, members, progress=report_progress, **how), **identity
        )
        release_freed()
        run.store.replace_scores(pairs.suite, [*others, *rows])
    measured = {"chance": CHANCE, "temperature": options.temperature, **coverage(scorer.tokenizer, pairs)}
    suite_rows = [Score(pairs.suite, metric, value, **identity) for metric, value in measured.items()]
    run.store.replace_scores(pairs.suite, [*others, *mean_accuracies(pairs.pairs, rows), *rows, *suite_rows])


def format_pairs(run: Run, pairs: PairSet) -> str:
    lines = [f"{pairs.suite} ({pairs.origin}; chance {CHANCE}):"]
    rows = Rows(run.store.scores(pairs.suite, task=ALL)).where(seed=None)
    coverage, single_tokens = (rows.where(metric=metric).along("variant") for metric in ("coverage", "whole_words"))
    for variant, row in rows.where(metric="accuracy").along("variant").items():
        if row.low is not None and row.high is not None:
            lines.append(
                f"  {variant:24} {row.value:.3f} [{row.low:.3f}, {row.high:.3f}]   "
                f"{coverage[variant].value:.1%} of words known, {single_tokens[variant].value:.1%} as one token"
            )
    return "\n".join(lines)
