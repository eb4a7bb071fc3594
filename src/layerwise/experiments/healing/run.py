"""A healing that is ready to run: its model and data are open, its arms are known; and the checkpoint at its end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path

from layerwise.checkpoint import save
from layerwise.data.splits import Splits
from layerwise.data.text.language_modelling import masked_splits_of
from layerwise.errors import DataError, PlanError
from layerwise.experiments.base_model import base_model
from layerwise.experiments.documents import divided_documents
from layerwise.experiments.engines.trainings import are_short, evaluation_work, recipe_works, steps_behind
from layerwise.experiments.engines.work import Work
from layerwise.experiments.experiment import Inputs, Prepared
from layerwise.experiments.healing.arms import (
    DEMO_EPOCHS,
    SETTINGS,
    HealingArm,
    HealingSweep,
    arms_of,
    folder_of_trial,
    recipe_of,
)
from layerwise.experiments.healing.config import Healing
from layerwise.experiments.healing.outcomes import Outcomes
from layerwise.experiments.healing.rows import Trainings, healing_rows
from layerwise.experiments.provenance import described
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import describe_model, duration
from layerwise.experiments.splits import TEXT_LENGTH, read_splits
from layerwise.experiments.training_runs import check_enough, describe_splits, split_notes
from layerwise.experiments.trainings import discard_trainings, training_progress
from layerwise.measure.language.evaluation_data import objective_of
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.training_record import FILE, MODEL, TrainingRecord
from layerwise.stack import Stack
from layerwise.stack.max_length import longest_input
from layerwise.train.arguments import check_arguments
from layerwise.train.checkpoint_dir import existing_run
from layerwise.train.heal.adapters import CONFIG, peft
from layerwise.train.heal.healed import load_healed
from layerwise.train.processes import shared_recipe, training_settings
from layerwise.train.recipe import Settings
from layerwise.train.training import train, training_config

ADAPTER = "adapter"
HEALING = "healing"


class PreparedHealing(Prepared):
    """A base model, splits, and the arms that are trained.

    Raises `PlanError` for a plan of other layers, `DataError` for data that the model does not take or that are too
    few, and `TrainError` where a library is missing or a setting is none.
    """

    def __init__(self, config: Healing, reporter: Reporter, inputs: Inputs) -> None:
        self.config = config = replace(config, precision=config.resolved_precision(config.device, config.run))
        self.arguments = config.trainer_arguments(config.device)
        check_arguments(self.arguments)
        self.arms = arms_of(config)
        if any(arm.options.method == "lora" for arm in self.arms):
            peft()
        opened = base_model(config.model, config, inputs.stack)
        self.stack = opened.stack
        self.plan = config.parsed_plan
        self.stack.check(self.plan)
        self._check_windows()
        self.is_filled_in = _fills_in(self.stack)
        self.splits = _splits(config, self.stack, opened.location, reporter, inputs, self.is_filled_in)
        check_enough(self.splits)
        self.base = opened.base()
        self.settings = self._settings()
        self.sweep = HealingSweep(config.learning_rates)
        self.manifest = described(
            self.stack, self.base.weights, corpus=self.splits.name, corpus_hash=self.splits.digest,
            documents=len(self.splits.test), tokens=len(self.splits.test), window=1, families=(HEALING,),
            tasks=(str(self.plan),), seed=config.seed, settings=training_settings(self.arguments),
        )  # fmt: skip
        content = {"settings": self.settings.to_json(), "rates": config.learning_rates, "rank": config.rank}
        self.recipe = shared_recipe({**content, "arms": [arm.name for arm in self.arms]}, self.arguments)

    def _check_windows(self) -> None:
        most = self.config.windows or 0
        if most >= self.stack.depth:
            raise PlanError(
                f"windows of up to {most} layers were to be skipped, and the model has {self.stack.depth}; write "
                f"--windows {self.stack.depth - 1} or less"
            )

    def _settings(self) -> Settings:
        config, count = self.config, len(self.splits.train)
        settings = replace(SETTINGS, epochs=DEMO_EPOCHS.get(config.model, SETTINGS.epochs), **config.changes())
        if config.epochs is not None:
            settings = replace(settings, epochs=config.epochs)
        if config.steps is not None:
            settings = replace(settings, epochs=config.steps / ceil(count / settings.batch_size))
        return settings

    def describe(self) -> Iterator[str]:
        """The model, the data, the plan, the arms, and how many steps they take."""
        yield describe_model(self.stack)
        yield describe_splits(self.splits)
        yield from split_notes(self.splits)
        left_out = sorted(set(range(self.stack.depth)) - set(self.plan.layers()))
        names = f"layer{'s' * (len(left_out) != 1)} {', '.join(map(str, left_out))}"
        without = f"without {names}" if left_out else "with every layer"
        yield f"plan {self.plan}: {len(self.plan.steps())} visits, {without}"
        swept = [arm for arm in self.arms if arm.is_swept and len(self.sweep.first_rates(arm)) > 1]
        trials = sum(len(self.sweep.first_rates(arm)) for arm in swept)
        steps = self.settings.steps(len(self.splits.train))
        yield (
            f"{len(self.arms)} arms ({', '.join(arm.name for arm in self.arms)}) with {self.config.seeds} seeds each, "
            f"and at least {trials} trials of learning rates: {steps:,} steps each"
        )

    def check(self, folder: Path) -> None:
        """Refuse a folder that holds another healing, before any is begun."""
        for arm in self.arms:
            rates = self.sweep.first_rates(arm)
            if arm.is_swept and len(rates) > 1:
                path, seed = folder_of_trial(folder, arm, rates[0])
                existing_run(path, self._wanted(arm, seed, rates[0]))

    def discard(self, folder: Path) -> None:
        """Remove every training, and what was written from them."""
        discard_trainings(folder)
        discard_trainings(folder / "pilot")
        for path in (folder / MODEL, folder / ADAPTER, folder / "outcomes"):
            shutil.rmtree(path, ignore_errors=True)

    def models_of(self, folder: Path) -> Mapping[str, Path]:
        """The healed model."""
        return {self.config.main: folder / MODEL}

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The trainings that are not finished, those of the first learning rates too, and the evaluations."""
        left = {}
        for arm in self.arms:
            rates = self.sweep.first_rates(arm)
            paths = [folder / arm.name / f"seed-{seed}" for seed in range(self.config.seeds)]
            if arm.is_swept and len(rates) > 1:
                paths += [folder_of_trial(folder, arm, rate)[0] for rate in rates]
            left[arm.name] = (recipe_of(arm, self._plan(arm, 0), self.settings, rates[0]), steps_behind(paths))
        models = sum(len(behind) for _, behind in left.values())
        if not models or are_short(self.stack, self.splits, left, models * len(self.splits.test)):
            return
        yield evaluation_work("outcomes", self.stack, self.splits, models + 1, filled_in=self.is_filled_in)
        yield from recipe_works(self.base, self.splits, left, self.arguments)

    def train(self, folder: Path, reporter: Reporter) -> None:
        """Sweep the learning rates that are to be swept, then train every arm with every seed."""
        for arm in self.arms:
            if arm.is_swept and len(self.sweep.first_rates(arm)) > 1:
                for rate in self.sweep.due(arm):
                    path, seed = folder_of_trial(folder, arm, rate)
                    self.sweep.note(arm, rate, self._train(arm, seed, rate, path, reporter, f"{arm.name}@{rate:g}"))
        for seed in range(self.config.seeds):
            for arm in self.arms:
                rate = self.sweep.chosen(arm)
                path = folder / arm.name / f"seed-{seed}"
                self._train(arm, seed, rate, path, reporter, f"{arm.name}/{seed}")

    def _plan(self, arm: HealingArm, seed: int) -> Plan:
        return arm.plan(self.plan, self.stack.depth, seed)

    def _wanted(self, arm: HealingArm, seed: int, rate: float) -> dict[str, object]:
        recipe = recipe_of(arm, self._plan(arm, seed), self.settings, rate)
        return training_config(self.base, self.splits, recipe, seed)

    def _train(
        self, arm: HealingArm, seed: int, rate: float, path: Path, reporter: Reporter, label: str
    ) -> TrainingRecord:
        is_finished = (path / MODEL / FILE).is_file()
        recipe = recipe_of(arm, self._plan(arm, seed), self.settings, rate)
        record = train(
            self.base, self.splits, recipe, seed, path, progress=training_progress(reporter, label),
            arguments=self.arguments,
        )  # fmt: skip
        if not is_finished:
            least = min(entry.loss for entry in record.history if entry.kind == "validation")
            reporter.log(
                f"{label}: {record.steps:,} steps in {duration(record.seconds)}, least validation loss {least:.3f}"
            )
        return record

    def healed(self, path: Path) -> Stack:
        """The model of a finished training, its adapters merged."""
        return load_healed(self.base.open(), path / MODEL)

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Evaluate every model on the text that is reported, store the rows, and write the checkpoint."""
        folder, seeds = run.folder, range(self.config.seeds)
        outcomes = Outcomes(folder, self.splits, self.is_filled_in, reporter)
        trainings = Trainings(
            plan=self.plan, depth=self.stack.depth, arms=self.arms, seeds=len(seeds), losses=self.sweep.losses,
            records={
                (arm.name, seed): _record(folder / arm.name / f"seed-{seed}") for arm in self.arms for seed in seeds
            },
        )  # fmt: skip
        for name, plan in trainings.unhealed().items():
            outcomes.add(name, "", plan, lambda: self.stack)
        for arm in self.arms:
            for seed in seeds:
                path = folder / arm.name / f"seed-{seed}"
                plan = self._plan(arm, seed)
                outcomes.add(f"{arm.name}/{seed}", path.relative_to(folder), plan, partial(self.healed, path))
        rows = healing_rows(trainings, outcomes)
        for measure in dict.fromkeys(row.measure for row in rows):
            run.store.replace_scores(measure, [row for row in rows if row.measure == measure])
        run.store.replace_notes(HEALING, [*split_notes(self.splits), *self._write(folder, trainings.best(), reporter)])

    def _write(self, folder: Path, seed: int, reporter: Reporter) -> list[str]:
        """Write RUN/model and RUN/adapter from the training of `seed`; returns what there is to note."""
        path = folder / self.arms[0].name / f"seed-{seed}"
        if (path / MODEL / CONFIG).is_file():
            shutil.copytree(path / MODEL, folder / ADAPTER, dirs_exist_ok=True, ignore=shutil.ignore_patterns(FILE))
        text = f"RUN/{MODEL} is the model of seed {seed}, whose validation loss is the least"
        if (folder / MODEL / "config.json").is_file():
            return [text]
        try:
            save(self.healed(path), self.plan, folder / MODEL)
        except PlanError as error:
            text = f"no RUN/{MODEL} was written: {error.reason}"
        reporter.log(text.replace("RUN", str(folder)))
        return [text]


def _record(path: Path) -> TrainingRecord:
    record = TrainingRecord.read(path / MODEL)
    assert record is not None, "it is trained"
    return record


def _fills_in(stack: Stack) -> bool:
    is_text = getattr(stack.model, "main_input_name", None) == "input_ids"
    return is_text and objective_of(stack) == "masked_token"


def _splits(
    config: Healing, stack: Stack, location: str | None, reporter: Reporter, inputs: Inputs, is_filled_in: bool
) -> Splits:
    """The splits of the options; tokens to fill in for a model that does that."""
    if not is_filled_in:
        return read_splits(config, stack, location, reporter, seed=config.seed, corpus=inputs.corpus)
    if config.images is not None or config.limit is not None or config.select_on == "reported":
        raise DataError(
            f"{stack.source.name} fills in tokens of text: give it --text, and neither --images nor --limit nor "
            "--select-on reported"
        )
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer beside it; give one with --tokenizer PATH")
    positions = longest_input(stack.model)
    name, division = divided_documents(config, config.seed, inputs.corpus)
    for note in division.notes:
        reporter.log(f"note: {note}")
    length = config.max_length or min(TEXT_LENGTH, positions or TEXT_LENGTH)
    return masked_splits_of(
        stack.tokenizer, name, division.parts, length=length, positions=positions, seed=config.seed
    )  # fmt: skip
