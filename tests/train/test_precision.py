"""The precision of a training: what was asked for, else what its run began in, else what suits the device."""

from dataclasses import replace
from pathlib import Path

import pytest

from layerwise.experiments.growth.config import GrowthTraining
from layerwise.experiments.pretraining.config import ElcPretraining
from layerwise.experiments.robustness.config import RobustTraining
from layerwise.train import precision
from layerwise.train.checkpoint_dir import existing_run, write_config
from layerwise.train.pretrain.recipe import pretraining_recipe
from layerwise.train.recipe import Recipe, Settings


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: device != "cpu")


def begun(run: Path, content: dict[str, object]) -> Path:
    folder = run / "arm" / "seed-0"
    write_config(folder, {"recipe": content, "seed": 0})
    return folder


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize(
    "config",
    [RobustTraining(model="demo-vit", methods=("layershuffle",)), GrowthTraining(), ElcPretraining()],
    ids=lambda config: config.VERB,
)
def test_an_accelerator_that_has_bfloat16_uses_it_unless_told_otherwise(
    config: RobustTraining | GrowthTraining | ElcPretraining,
) -> None:
    assert config.resolved_precision("auto", None) == "bfloat16"
    assert config.resolved_precision("cpu", None) == "float32"
    assert replace(config, precision="float16").resolved_precision("auto", None) == "float16"
    assert replace(config, set=("bf16=true",)).resolved_precision("auto", None) == "float32"


def test_this_machine_s_processor_computes_in_float32() -> None:
    assert precision.default_precision("cpu") == "float32"


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("taken", ["float32", "bfloat16"])
def test_a_run_goes_on_in_the_precision_that_it_began_in(tmp_path: Path, taken: precision.Precision) -> None:
    config = ElcPretraining()
    recipe = pretraining_recipe("tiny", precision=taken)
    folder = begun(tmp_path / "elc", recipe.to_json())
    resumed = config.resolved_precision("auto", tmp_path / "elc")
    assert resumed == taken
    again = {"recipe": replace(recipe, precision=resumed).to_json(), "seed": 0}
    assert existing_run(folder, again) is None
    begun(tmp_path / "growth", Recipe("arm", Settings(precision=taken)).to_json())
    assert config.resolved_precision("auto", tmp_path / "growth") == taken
    assert config.resolved_precision("auto", tmp_path / "nothing yet") == "bfloat16"
