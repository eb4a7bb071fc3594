"""Merged models compared with the models that they are made of, arm by arm."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from layerwise.data.model_location import location_of
from layerwise.data.splits import Splits
from layerwise.errors import ModelError
from layerwise.experiments.experiment import Inputs, Prepared
from layerwise.experiments.merging.comparison import compare
from layerwise.experiments.merging.config import Merging
from layerwise.experiments.merging.node_replacement import ORDERS
from layerwise.experiments.merging.sources import Arms, SourceModel, arms_of
from layerwise.experiments.opening import open_model, quiet_transformers
from layerwise.experiments.options.model import LoadingOptions
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import describe_model
from layerwise.experiments.splits import DIGITS, read_splits
from layerwise.experiments.training_runs import (
    as_trained,
    check_enough,
    describe_splits,
    manifest_of_trainings,
    refuse_other_splits,
    training_manifest,
)
from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.measure.contrasts.merged import CLAIMS
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score
from layerwise.results.run import MANIFEST
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import BEST_MEMBER, ENSEMBLE, MEMBERS, MERGED, MERGES, MERGING
from layerwise.stack import Stack, weight_hash
from layerwise.train.load_trained import open_trained

PARTS = (MEMBERS, BEST_MEMBER, MERGED, ENSEMBLE)
COLUMNS = ("accuracy", "order", *PARTS)
SPLIT_FLAGS = ("--images or --text (--validation, --test)", "--limit", "--select-on", "--seed")


def compare_arms(
    run: Run,
    arms: Arms,
    splits: Splits,
    open_source: Callable[[SourceModel], Stack],
    reporter: Reporter,
    *,
    draws: int,
    seed: int,
) -> list[str]:
    """Evaluate the members of every arm with two models or more, models merged from them and their ensemble.

    The rows go into `run`. Returns what was left out, in sentences. Arms are opened one after the other.
    """
    rows: list[Score] = []
    notes = [f"{arm} has one model, so nothing was merged" for arm, models in arms.items() if len(models) < 2]
    for arm, models in arms.items():
        if len(models) < 2:
            continue
        added = next((source.added for source in models.values() if source.added), None)
        if added:
            notes.append(
                f"{arm}: each layer was trained with {added} of its own model, so its models were evaluated together "
                "but not merged"
            )

        def progress(done: int, parts: int, arm: str = arm) -> None:
            reporter.progress(f"merging {arm}", done / parts)

        stacks = {name: open_source(source) for name, source in models.items()}
        rows += compare(arm, stacks, splits, draws=0 if added else draws, seed=seed, progress=progress)
    if splits.selects_on_reported and rows:
        notes.append("the best member was chosen on the examples that are reported (--select-on reported)")
    for measure in (MERGING, MERGES):
        run.store.replace_scores(measure, [row for row in rows if row.measure == measure])
    contrasts = [row for row in rows if row.measure == CONTRAST]
    run.store.replace_scores(CONTRAST, renewed(run.store.scores(CONTRAST), contrasts, CLAIMS))
    run.store.replace_notes(MERGING, notes)
    return notes


class PreparedMerging(Prepared):
    """Models grouped by arm, and the examples that all are evaluated on.

    The rows go into the run of the trainings where all models are from one, else into a run of their own. Raises
    `ModelError` where no arm has two models, and `RunError` for splits that a model may have learned from.
    """

    def __init__(self, config: Merging, reporter: Reporter, inputs: Inputs) -> None:
        quiet_transformers()
        self.config = config
        self.arms = arms_of(config.models, config.arm, reporter)
        self.several = {arm: models for arm, models in self.arms.items() if len(models) > 1}
        if not self.several:
            raise ModelError(
                f"merging takes two models or more that were trained alike; found 1 of {', 1 of '.join(self.arms)}"
            )
        path = Path(config.models[0]).expanduser()
        self.of_run = path if len(config.models) == 1 and (path / MANIFEST).is_file() else None
        self.folder = self.of_run if config.run in (None, self.of_run) else None
        recorded = None if self.of_run is None else manifest_of_trainings(self.of_run)
        first = next(iter(next(iter(self.several.values())).values()))
        self.stack = self._open(first)
        if recorded is not None:
            self.stack.source = replace(self.stack.source, name=recorded.model)
        read = config if recorded is None else as_trained(config, recorded)
        self.splits = self._splits(read, first, reporter, inputs)
        self.manifest = recorded or self._manifest()

    def _splits(self, config: Merging, first: SourceModel, reporter: Reporter, inputs: Inputs) -> Splits:
        known = first.record.data_name if first.record is not None else None
        if config.images is None and config.text is None and inputs.corpus is None and known == DIGITS:
            config = replace(config, images=DIGITS)
        splits = read_splits(
            config, self.stack, location_of(first.location), reporter, seed=config.seed, corpus=inputs.corpus
        )
        for models in self.several.values():
            for name, source in models.items():
                if source.record is not None and source.record.data != splits.digest:
                    what = f"{name} ({source.location})"
                    raise refuse_other_splits(what, source.record.data_name, splits, SPLIT_FLAGS)
        check_enough(splits)
        return splits

    def _manifest(self) -> Manifest:
        weights = ""
        for models in self.several.values():
            stacks = {name: self._open(source) for name, source in models.items()}
            Stack.with_sources(stacks)  # refuses models whose layers do not fit together
            weights += "".join(weight_hash(stack.model) for stack in stacks.values())
        combined = hashlib.sha256(weights.encode()).hexdigest()
        return training_manifest(self.stack, combined, self.splits, seed=self.config.seed)

    def describe(self) -> Iterator[str]:
        """The models, the data, and how many merged models are evaluated."""
        yield describe_model(self.stack)
        yield describe_splits(self.splits)
        arms, draws, examples = len(self.several), self.config.draws, len(self.splits.test)
        models = sum(len(models) for models in self.several.values())
        yield (
            f"{models} models of {arms} arm{'s' * (arms != 1)}: {2 * draws * arms:,} merged models, each evaluated on "
            f"{examples:,} examples, and every model in two orders"
        )

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Evaluate members, merged models and ensembles of every arm."""
        notes = compare_arms(
            run, self.arms, self.splits, self._open, reporter, draws=self.config.draws, seed=self.config.seed
        )
        for note in notes:
            reporter.log(f"note: {note}")

    def results(self, run: Run) -> Sequence[str]:
        """The accuracy of members, merged models and ensembles, mean and standard deviation, as a table."""
        return (_table(Rows(run.store.scores(MERGING)), self.several),)

    def _open(self, source: SourceModel) -> Stack:
        config = self.config
        if source.added:
            return open_trained(Path(source.location), device=config.device, dtype=config.dtype).stack
        return open_model(LoadingOptions(device=config.device), model=source.location, dtype=config.dtype)


def _table(scores: Rows, arms: Mapping[str, Mapping[str, SourceModel]]) -> str:
    def cell(arm: str, order: str, part: str) -> str:
        of = {"arm": arm, "condition": order, "part": part}
        value, spread = (scores.value(**of, metric=metric) for metric in ("accuracy", "accuracy_spread"))
        if value is None:
            return "–"
        return f"{value:.1%}" if spread is None else f"{value:.1%} ± {spread:.1%}"

    rows: list[tuple[str, ...]] = [COLUMNS]
    for arm in arms:
        for order in ORDERS:
            rows.append((arm, order, *(cell(arm, order, part) for part in PARTS)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
