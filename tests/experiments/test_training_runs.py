"""A run of trained models is measured on the examples that it was trained with, without naming them again."""

from dataclasses import replace
from pathlib import Path

import pytest
from transformers import ViTForImageClassification

from cli.picture_models import save_images, save_vit
from experiments.outlines import outline_of
from layerwise.data.splits import Splits
from layerwise.errors import RunError
from layerwise.experiments.option import plain
from layerwise.experiments.reporter import Silent
from layerwise.experiments.robustness.config import Merging, Robustness, RobustTraining
from layerwise.experiments.training_runs import read_splits, training_manifest
from layerwise.results import Run
from layerwise.results.training_record import TrainingRecord
from layerwise.stack import load


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Splits]:
    home = tmp_path_factory.mktemp("trained")
    model, run = save_vit(home / "vit", classes=2), home / "run"
    training = RobustTraining(
        model=str(model), methods=("layershuffle",), images=str(save_images(home / "images")), limit=30, seed=3
    )
    stack = load(model)
    splits = read_splits(training, stack, str(model), Silent(), seed=training.seed)
    manifest = training_manifest(stack, "weights", splits)
    with Run.create(run, replace(manifest, experiment={"experiment": training.VERB, **plain(training)})):
        pass
    for seed in range(2):
        folder = run / "layershuffle" / f"seed-{seed}" / "model"
        ViTForImageClassification.from_pretrained(model).save_pretrained(folder)
        recipe = {"variant": "plain"}
        TrainingRecord("layershuffle", seed, "base", splits.digest, splits.name, recipe, 1, 1.0, 1, 1.0, 1).write(
            folder
        )
    return run, splits


def digest_of(config: Merging | Robustness) -> str:
    return outline_of(config).manifest.corpus_hash


@pytest.mark.parametrize("verb", ["robustness", "merge"])
def test_the_images_of_the_training_are_those_of_its_run(verb: str, trained: tuple[Path, Splits]) -> None:
    run, splits = trained
    configs = {
        "robustness": Robustness(model=str(run)),
        "merge": Merging(models=(str(run),)),
    }
    assert digest_of(configs[verb]) == splits.digest


def test_what_is_named_stands_and_other_examples_are_refused(trained: tuple[Path, Splits], tmp_path: Path) -> None:
    run, splits = trained
    with pytest.raises(RunError, match="was trained on images with other splits"):
        digest_of(Robustness(model=str(run), limit=20))
    copies = save_images(tmp_path / "images")
    assert digest_of(Robustness(model=str(run), images=str(copies))) == splits.digest
