"""The steps of a study of layer weights: its pretrainings, its fine-tunings, and the differences."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from layerwise.data.suites.classification import Task
from layerwise.data.suites.glue import GLUE, read_tasks
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.segments import cut
from layerwise.errors import TrainError
from layerwise.measure.cost.overhead import overhead
from layerwise.results import Rows, Score
from layerwise.results import vocabulary as vocab
from layerwise.runner.call import CallUnit, MeasureUnit
from layerwise.runner.experiment import Inputs
from layerwise.runner.reporter import Reporter
from layerwise.runner.steps import Completed, Outline, Steps
from layerwise.runner.training_options import changed
from layerwise.runner.training_runs import discard_trainings, divided_documents
from layerwise.studies.train_elc import study_arms as study
from layerwise.studies.train_elc.evaluation import evaluate_pretrained
from layerwise.studies.train_elc.options import LayerWeightsStudy
from layerwise.studies.train_elc.study_rows import (
    bias_rows,
    cost_rows,
    difference_rows,
    share_rows,
    study_convergence,
    study_tuning_convergence,
)
from layerwise.studies.train_elc.study_tunings import REWIRED, tune, tuning_sets
from layerwise.studies.train_elc.trainings import FAMILY, Pretrainings, prepare_pretrainings
from layerwise.train.fine_tuning import FineTuningConfig
from layerwise.train.pretrain.recipe import new_model
from layerwise.train.processes import is_alone

STEPS = 400
"""Steps of every training of the tiny model, so that the whole study takes less than half an hour on two cores."""

FINE_TUNING = FineTuningConfig(learning_rates=(3e-4,), batch_size=32, epochs=4, patience=2, length=48)


def layer_weights_study(config: LayerWeightsStudy, reporter: Reporter, inputs: Inputs) -> Steps:
    """Pretrain the arms with equal steps and one at equal seconds; evaluate, fine-tune and compare them.

    Raises `TrainError` for several processes, and what `prepare_pretrainings` raises.
    """
    if not is_alone():
        raise TrainError(
            "a study is many small trainings, one after the other, on one process; start it without torchrun"
        )
    reporter.log("loading torch")
    config = replace(config, precision=config.resolved_precision(config.device, config.run))
    steps = config.steps or (STEPS if config.size == "tiny" else None)
    recipes = study.arms(config.size, config.bias, **config.changes(), **changed(steps=steps))
    own = prepare_pretrainings(config, recipes, reporter, inputs.corpus)
    shared = tuple(_of_shares(config, own, reporter, inputs.corpus))
    glue, on_glue = _glue_tasks(config), FineTuningConfig(**config.glue_changes())
    taught = [(study.tasks(), replace(FINE_TUNING, evals=config.tuning_evals)), (glue, on_glue)]
    on_texts = (own, *shared)

    def refuse(folder: Path) -> None:
        for each in on_texts:
            each.refuse(folder)

    def says() -> Iterator[str]:
        yield from own.describe()
        seeds = f"{config.seeds} seed{'s' * (config.seeds != 1)} each"
        tuned = (len(recipes) + len((study.AT_EQUAL_SECONDS, study.REWIRED, study.KEPT))) * config.seeds
        fine_tunings = tuned * (len(study.TASKS) + 1)  # one of the tasks with shuffled labels too
        yield (
            f"beside them {config.seeds} training{'s' * (config.seeds != 1)} of {study.AT_EQUAL_SECONDS}, with as many "
            f"steps as take the time of {vocab.BACKBONE}, and {fine_tunings} fine-tunings of {FINE_TUNING.epochs} "
            "epochs each"
        )
        if glue:
            yield (
                f"and {tuned * len(glue)} fine-tunings on {', '.join(task.name for task in glue)} of at most "
                f"{on_glue.epochs} epochs each"
            )
        for each in shared:
            yield (
                f"{' and '.join(recipe.arm for recipe in each.recipes)}: {seeds}, {each.text.train.tokens:,} tokens "
                "to train on, as many steps"
            )

    session = yield Outline(
        own.manifest(config.seed, (FAMILY, "layer-weights")),
        says,
        recipe=own.shared_recipe(),
        ahead=on_texts,
        refuse=refuse,
        discard=discard_study,
    )
    for each in on_texts:
        yield from each
    costs = yield from CallUnit(
        vocab.STUDY,
        lambda: _costs(own, study.bias_arms(config.bias)),
        "timing a step of every arm, round by round",
        lambda row: row.metric == "ratio",
    )
    slower = Rows(costs).where(arm=vocab.LAYER_WEIGHTS, task="training step")[0].value
    timed = next(recipe for recipe in recipes if recipe.arm == vocab.LAYER_WEIGHTS)
    yield from own.of([study.at_equal_seconds(timed, slower)])
    yield from MeasureUnit(
        lambda session: evaluate_pretrained(
            own, session.run, session.reporter, pairs=study.PAIRS_EACH, segments=study.SEGMENTS
        )
    )
    yield from MeasureUnit(lambda session: tune(session, tuning_sets(own, session.folder, taught), own.device))
    measures = (vocab.MASKED_LM, vocab.PAIRS, vocab.OUR_MSGS, GLUE, vocab.ATTRIBUTION)
    models = [row for name in measures for row in session.store.scores(name)]
    return Completed(
        [
            *costs,
            *difference_rows(models),
            *bias_rows(models, study.bias_arms(config.bias)),
            *share_rows(models),
            *study_convergence(session.store.scores(vocab.TRAINING)),
            *study_tuning_convergence(session.store.scores(vocab.LEARNING_CURVE)),
        ]
    )


def discard_study(folder: Path) -> None:
    discard_trainings(folder)
    shutil.rmtree(folder / REWIRED, ignore_errors=True)


def _of_shares(
    config: LayerWeightsStudy, own: Pretrainings, reporter: Reporter, corpus: Corpus | None
) -> Iterator[Pretrainings]:
    shares = [share for share in config.share_values() if share < 1]
    if not shares:
        return
    _, division = divided_documents(config, config.seed, corpus)
    for share in shares:
        reporter.log(f"encoding {share:g} of the training text")
        text = study.shared_text(own.text, division.parts, own.tokenizer, share, config.seed)
        recipes = study.share_recipes(own.recipes, share)
        recipes[0].phases([len(cut(text.train, length)) for length in recipes[0].lengths])
        yield own.of(recipes, text)


def _glue_tasks(config: LayerWeightsStudy) -> tuple[Task, ...]:
    if config.glue is None:
        return ()
    names = [name.casefold() for name in config.glue_tasks]
    return tuple(read_tasks(config.glue, names or None, seed=config.seed))


def _costs(pretrainings: Pretrainings, grid: Collection[str]) -> list[Score]:
    device, tokenizer = pretrainings.device, pretrainings.tokenizer
    timed = [recipe for recipe in pretrainings.recipes if recipe.arm in study.BIASES or recipe.arm not in grid]
    models = {recipe.arm: new_model(recipe, tokenizer).to(device) for recipe in timed}
    batch = study.batch(pretrainings.recipes[0], len(tokenizer))
    return cost_rows(overhead(models, {name: tensor.to(device) for name, tensor in batch.items()}))
