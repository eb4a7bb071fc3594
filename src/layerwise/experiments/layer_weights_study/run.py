"""A study of layer weights that is ready to run: its pretrainings, its fine-tunings, and the differences."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from layerwise.data.suites.classification import Task
from layerwise.data.suites.glue import GLUE, find_tasks
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.segments import cut
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import TrainError
from layerwise.experiments.cluster.pieces import Telling
from layerwise.experiments.documents import divided_documents
from layerwise.experiments.experiment import Prepared
from layerwise.experiments.finetuned_tasks import FineTunedModel, run_benchmarks
from layerwise.experiments.layer_weights_study import arms as study
from layerwise.experiments.layer_weights_study.attribution import attribution_rows, with_arms
from layerwise.experiments.layer_weights_study.bias import bias_rows
from layerwise.experiments.layer_weights_study.config import LayerWeightsStudy
from layerwise.experiments.layer_weights_study.convergence import study_convergence, study_tuning_convergence
from layerwise.experiments.layer_weights_study.shares import share_recipes, share_rows, shared_text
from layerwise.experiments.layer_weights_study.tunings import PART, StudyTuning, tune_elsewhere
from layerwise.experiments.options.training import changed
from layerwise.experiments.pretraining.evaluation import evaluate_pretrained
from layerwise.experiments.pretraining.trainings import FAMILY, Pretrainings, prepare_pretrainings
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.trainings import discard_trainings
from layerwise.measure.cost.overhead import Overhead, overhead
from layerwise.measure.workers import Emit, Plain
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.rewire import rewired
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import (
    ATTRIBUTION,
    BACKBONE,
    CONVERGENCE,
    DATA_SHARE,
    INITIAL_BIAS,
    LAYER_WEIGHTS,
    LEARNING_CURVE,
    MASKED_LM,
    OUR_MSGS,
    PAIRS,
    STUDY,
    TRAINING,
    TUNING_CONVERGENCE,
)
from layerwise.train.finetune.fine_tuning import FineTuningConfig
from layerwise.train.pretrain.recipe import new_model
from layerwise.train.processes import is_alone

STEPS = 400
"""Steps of every training of the tiny model, so that the whole study takes less than half an hour on two cores."""

FINE_TUNING = FineTuningConfig(learning_rates=(3e-4,), batch_size=32, epochs=4, patience=2, length=48)

REWIRED = "rewired"
"""The folder of models that were given layer weights after their pretraining."""


class PreparedLayerWeightsStudy(Prepared):
    """The recipes of the arms that take equal steps, a tokenizer and an encoded text.

    Raises `TrainError` for several processes, and what `prepare_pretrainings` raises.
    """

    def __init__(self, config: LayerWeightsStudy, reporter: Reporter, corpus: Corpus | None) -> None:
        if not is_alone():
            raise TrainError(
                "a study is many small trainings, one after the other, on one process; start it without torchrun"
            )
        self.config = config = replace(config, precision=config.resolved_precision(config.device, config.run))
        steps = config.steps or (STEPS if config.size == "tiny" else None)
        recipes = study.arms(config.size, config.bias, **config.changes(), **changed(steps=steps))
        self.pretrainings = prepare_pretrainings(config, recipes, reporter, corpus)
        self.shared = tuple(self._of_shares(reporter, corpus))
        self.manifest = self.pretrainings.manifest(config.seed, (FAMILY, "layer-weights"))
        self.recipe = self.pretrainings.shared_recipe()
        self.glue = () if config.glue is None else _glue_tasks(config, config.glue)

    def _of_shares(self, reporter: Reporter, corpus: Corpus | None) -> Iterator[Pretrainings]:
        """The pretrainings on shares of the text; on all of it the backbone and `elc` are trained in any case."""
        shares = [share for share in self.config.share_values() if share < 1]
        if not shares:
            return
        own = self.pretrainings
        _, division = divided_documents(self.config, self.config.seed, corpus)
        for share in shares:
            reporter.log(f"encoding {share:g} of the training text")
            text = shared_text(own.text, division.parts, own.tokenizer, share, self.config.seed)
            recipes = share_recipes(own.recipes, share)
            recipes[0].phases([len(cut(text.train, length)) for length in recipes[0].lengths])
            yield replace(own, recipes=recipes, text=text)

    def describe(self) -> Iterator[str]:
        """The text, the vocabulary, the arms, and how many tokens each training reads."""
        yield from self.pretrainings.describe()
        seeds = self.config.seeds
        tuned = (len(self.pretrainings.recipes) + len((study.AT_EQUAL_SECONDS, study.REWIRED, study.KEPT))) * seeds
        taught = len(study.TASKS) + 1  # one of them with shuffled labels too
        yield (
            f"beside them {seeds} training{'s' * (seeds != 1)} of {study.AT_EQUAL_SECONDS}, with as many steps as take "
            f"the time of {BACKBONE}, and {tuned * taught} fine-tunings of {FINE_TUNING.epochs} epochs each"
        )
        if self.glue:
            yield (
                f"and {tuned * len(self.glue)} fine-tunings on {', '.join(task.name for task in self.glue)} of at most "
                f"{self._glue_settings().epochs} epochs each"
            )
        for each in self.shared:
            yield (
                f"{' and '.join(recipe.arm for recipe in each.recipes)}: {seeds} seed{'s' * (seeds != 1)} each, "
                f"{len(each.text.train.ids):,} tokens to train on, as many steps"
            )

    def check(self, folder: Path) -> None:
        """Raise `TrainError` where another pretraining is in the folder of one of these."""
        for each in (self.pretrainings, *self.shared):
            each.check(folder)

    def discard(self, folder: Path) -> None:
        """Remove every training, and the models that were made from them."""
        discard_trainings(folder)
        if (folder / REWIRED).is_dir():
            shutil.rmtree(folder / REWIRED)

    def train(self, folder: Path, reporter: Reporter) -> None:
        """Pretrain the arms that take equal steps, with every seed, then those that read a share of the text."""
        for number, each in enumerate((self.pretrainings, *self.shared)):
            each.train(folder, reporter, self.spread, number)

    def carry_out(self, piece: Plain, emit: Emit) -> Plain:
        """In a worker: one pretraining, or one fine-tuning."""
        if piece.get("part") == PART:
            tuning = StudyTuning.of(piece, (*study.tasks(self.config.seed), *self.glue))
            tuning.carry_out(Path(piece["folder"]), self.pretrainings.device, Telling(emit))
        else:
            (self.pretrainings, *self.shared)[piece["text"]].train_piece(piece, Telling(emit))

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Time the arms, train the one at equal seconds, evaluate and fine-tune all, and compare them."""
        slower = self._relative_step_time(run, reporter)
        timed = next(recipe for recipe in self.pretrainings.recipes if recipe.arm == LAYER_WEIGHTS)
        at_equal_seconds = replace(self.pretrainings, recipes=(study.at_equal_seconds(timed, slower),))
        at_equal_seconds.train(run.folder, reporter, self.spread)
        evaluate_pretrained(self.pretrainings, run, reporter, pairs=study.PAIRS_EACH, segments=study.SEGMENTS)
        self._fine_tune(run, reporter)
        costs = run.store.scores(STUDY, metric="ratio")
        measures = (MASKED_LM, PAIRS, OUR_MSGS, GLUE, ATTRIBUTION)
        models = [row for name in measures for row in run.store.scores(name)]
        run.store.replace_scores(STUDY, [*costs, *study.difference_rows(models)])
        run.store.replace_scores(INITIAL_BIAS, bias_rows(models, study.bias_arms(self.config.bias)))
        run.store.replace_scores(DATA_SHARE, share_rows(models))
        trained = study_convergence(run.store.scores(TRAINING), self.config.target_loss)
        run.store.replace_scores(CONVERGENCE, trained)
        tuned = study_tuning_convergence(run.store.scores(LEARNING_CURVE), self.config.target_score)
        run.store.replace_scores(TUNING_CONVERGENCE, tuned)

    def _glue_settings(self) -> FineTuningConfig:
        return FineTuningConfig(**self.config.glue_changes())

    def _fine_tune(self, run: Run, reporter: Reporter) -> None:
        """Fine-tune the models of every arm on mixed signals and on GLUE, and those of the arms that differ there."""
        free, held = _models_to_tune(self.pretrainings, run.folder)
        ours = replace(FINE_TUNING, evals=self.config.tuning_evals)

        def progress(label: str, step: int, steps: int) -> None:
            reporter.progress(label, step / steps)

        device = self.pretrainings.device
        tune_elsewhere(self._tunings(free, held, ours), run.folder, device, self.spread, reporter)
        attributed: list[Score] = []
        ambiguous = next(task for task in study.tasks(self.config.seed) if task.name == study.ATTRIBUTED)
        for models, frozen in ((free, ()), (held, (".scalars",))):
            attributed += attribution_rows(
                models, ambiguous, replace(ours, frozen=frozen), run.folder, progress=progress, device=device
            )  # fmt: skip
        run.store.replace_scores(ATTRIBUTION, with_arms(attributed))
        for tasks, settings in ((study.tasks(self.config.seed), ours), (self.glue, self._glue_settings())):
            for models, frozen in ((free, ()), (held, (".scalars",))):
                run_benchmarks(
                    models, tasks, replace(settings, frozen=frozen), run, seeds=1, progress=progress,
                    device=self.pretrainings.device,
                )  # fmt: skip

    def _tunings(self, free: Models, held: Models, ours: FineTuningConfig) -> Iterator[StudyTuning]:
        """Every fine-tuning of the study; those whose decisions are attributed first."""
        tasks = study.tasks(self.config.seed)
        for models, frozen in ((free, ()), (held, (".scalars",))):
            for model in models:
                used = replace(ours, frozen=frozen)
                yield from (
                    StudyTuning(model, task, used, task.name == study.ATTRIBUTED) for task in tasks
                )  # fmt: skip
                used = replace(self._glue_settings(), frozen=frozen)
                yield from (StudyTuning(model, task, used) for task in self.glue)

    def _relative_step_time(self, run: Run, reporter: Reporter) -> float:
        """How much longer a step with layer weights takes than the backbone's; timed once, as it decides the steps."""
        stored = run.store.scores(STUDY, metric="ratio")
        if not stored:
            reporter.log("timing a step of every arm, round by round")
            stored = study.cost_rows(_timed(self.pretrainings, study.bias_arms(self.config.bias)))
            run.store.replace_scores(STUDY, stored)
        return Rows(stored).where(arm=LAYER_WEIGHTS, task="training step")[0].value


def _timed(pretrainings: Pretrainings, grid: Collection[str]) -> dict[str, Overhead]:
    device, tokenizer = pretrainings.device, pretrainings.tokenizer
    # The arms of a grid of biases cost what `elc` costs.
    timed = [recipe for recipe in pretrainings.recipes if recipe.arm in study.BIASES or recipe.arm not in grid]
    models = {recipe.arm: new_model(recipe, tokenizer).to(device) for recipe in timed}
    batch = study.batch(pretrainings.recipes[0], len(tokenizer))
    return overhead(models, {name: tensor.to(device) for name, tensor in batch.items()})


Models = list[FineTunedModel]


def _models_to_tune(pretrainings: Pretrainings, run: Path) -> tuple[Models, Models]:
    """The models of every arm by label: those whose every weight learns, and those that hold their layer weights."""
    arms = [recipe.arm for recipe in pretrainings.recipes]
    free: Models = []
    held: Models = []
    for number in range(pretrainings.seeds):
        models = {arm: run / arm / f"seed-{number}" / "model" for arm in (*arms, study.AT_EQUAL_SECONDS)}
        free += [FineTunedModel(arm, number, model) for arm, model in models.items() if arm != study.FROZEN]
        free.append(FineTunedModel(study.REWIRED, number, _rewired(models[BACKBONE], run, number)))
        held.append(FineTunedModel(study.KEPT, number, models[LAYER_WEIGHTS]))
        held.append(FineTunedModel(study.FROZEN, number, models[study.FROZEN]))
    return free, held


def _glue_tasks(config: LayerWeightsStudy, folder: Path) -> tuple[Task, ...]:
    names = [name.casefold() for name in config.glue_tasks]
    return tuple(find_tasks(folder, names or None, seed=config.seed))


def _rewired(model: Path, run: Path, seed: int) -> Path:
    """The folder of a copy of `model` with layer weights that change nothing yet."""
    folder = run / REWIRED / f"{BACKBONE}-{seed}"
    if not (folder / "tokenizer.json").is_file():
        rewired(ElcForMaskedLM.from_pretrained(model)).save_pretrained(folder)
        load_tokenizer(model).save_pretrained(folder)
    return folder
