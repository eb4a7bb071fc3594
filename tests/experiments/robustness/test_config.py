"""The configurations of robust training and robustness refuse what cannot be before anything is loaded."""

from pathlib import Path
from typing import Any

import pytest

from layerwise.errors import LayerwiseError
from layerwise.experiments.robustness.config import OTHER_TRAININGS, Robustness, RobustTraining, named_methods
from layerwise.plan.samplers import Drop, Shuffle
from layerwise.train.methods import METHODS
from layerwise.train.methods.layershuffle import PositionOptions
from layerwise.train.recipe import Settings


def training(*methods: str, **options: Any) -> RobustTraining:
    return RobustTraining(methods=methods, model="demo-vit", **options)


@pytest.mark.slow
def test_the_baseline_is_trained_beside_the_methods() -> None:
    arms = [recipe.arm for recipe in training("layerdrop", "layershuffle").recipes(Settings(), 12)]
    assert arms == ["baseline", "layerdrop", "layershuffle"]
    alone = training("layerdrop", "retrained-3", baseline=False)
    assert [recipe.arm for recipe in alone.recipes(Settings(), 12)] == ["layerdrop", "retrained-3"]
    assert {recipe.arm for recipe in training("all").recipes(Settings(), 12)} == set(METHODS)


def test_depths_follow_the_first_of_their_kind() -> None:
    for methods in (("all", "retrained-9", "6", "3"), ("all", "retrained-9", "retrained-6", "retrained-3")):
        assert named_methods(methods) == (*METHODS, "retrained-9", "retrained-6", "retrained-3")
        arms = [recipe.arm for recipe in training(*methods).recipes(Settings(), 12)]
        assert set(arms) == set(named_methods(methods))
        assert arms[-3:] == ["retrained-9", "retrained-6", "retrained-3"]
    assert named_methods(("layershuffle", "6", "layershuffle")) == ("layershuffle", "6")
    assert training("all", "retrained-3", drop_rate=0.5, position_table="shared").baseline
    with pytest.raises(LayerwiseError, match="there is no way of training called '6'"):
        training("layershuffle", "6")


def test_the_position_encoding_has_a_dropout() -> None:
    config = training("layershuffle-position", position_dropout=0.25)
    (recipe,) = (each for each in config.recipes(Settings(), 12) if each.arm == "layershuffle-position")
    assert recipe.variant == PositionOptions(dropout=0.25)
    assert training("layershuffle-position").recipes(Settings(), 12)[1].variant == PositionOptions()


def test_an_option_replaces_a_setting_of_the_recipe() -> None:
    config = training(
        "layershuffle-layerdrop",
        batch_size=8,
        gradient_accumulation=2,
        learning_rate=0.5,
        epochs=3.0,
        evals=4,
        lr_schedule="cosine",
        augmentation="crop",
        precision="bfloat16",
        drop_rate=0.5,
        max_shift=2,
        drop_sync="per-rank",
    )
    _, recipe = config.recipes(Settings(weight_decay=0.25), 12)
    assert recipe.settings == Settings(
        epochs=3.0,
        batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=0.5,
        schedule="cosine",
        augmentation="crop",
        precision="bfloat16",
        evals=4,
        weight_decay=0.25,
    )
    assert (recipe.ranks, recipe.sampler) == ("per-rank", Drop(0.5, of=Shuffle(2)))


@pytest.mark.parametrize(
    ("methods", "options", "message"),
    [
        (("layershufle",), {}, "there is no way of training called 'layershufle'; did you mean layershuffle"),
        (("layershuffle", "dropout"), {}, "there is no way of training called 'dropout'"),
        (("elc",), {}, "layerwise train elc"),
        (("growth", "layershuffle"), {}, "layerwise train growth"),
        (("layershuffle",), {"drop_rate": 0.5}, "--set drop_rate does nothing here: it is read by layerdrop"),
        (("layerdrop",), {"max_shift": 2}, "--set max_shift does nothing here"),
        (("sequential",), {"drop_sync": "masked"}, "--set drop_sync does nothing here"),
        (("layershuffle",), {"prediction_token": "mean"}, "it is read by layershuffle-predict"),
        (("layershuffle",), {"position_table": "shared"}, "it is read by layershuffle-position"),
        (("layershuffle",), {"position_dropout": 0.1}, "it is read by layershuffle-position"),
        (("baseline",), {"evals": 3}, "the baseline is validated once, at its end"),
        (("layerdrop",), {"drop_rate": 2.0}, "is a probability from 0"),
        (("baseline",), {"gradient_accumulation": 3}, "equal parts"),
    ],
)
def test_trainings_that_cannot_be_are_refused(methods: tuple[str, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(LayerwiseError, match=message):
        training(*methods, **options)


def test_trainings_with_a_command_of_their_own_are_no_methods() -> None:
    assert not set(OTHER_TRAININGS) & set(METHODS)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("model", {"seeds": 2}, "--seeds does nothing here: it is read with RUN_OR_MODEL demo-vit"),
        ("demo-vit", {"dtype": "float64"}, "trained, and evaluated, in float32"),
        ("run", {"tokenizer": "t"}, "a run was given, and its models are opened as they were trained"),
        ("run", {"run": Path("other")}, "leave out --run other"),
    ],
)
def test_options_that_nothing_reads_are_refused(
    model: str, options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/manifest.json").write_text("{}")
    with pytest.raises(LayerwiseError, match=message):
        Robustness(model=model, **options)
