"""The configurations of robust training, and their tuning on planted losses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from layerwise.errors import LayerwiseError
from layerwise.plan.samplers import Drop, Shuffle
from layerwise.results.rows import Score
from layerwise.runner.reporter import Silent
from layerwise.runner.trainings import RecipeTraining
from layerwise.studies.robustness.options import OTHER_TRAININGS, Robustness, RobustTraining, named_methods
from layerwise.studies.robustness.steps import SettingsGrid, splits_of_trials
from layerwise.train.methods import METHODS
from layerwise.train.methods.layershuffle import PositionOptions
from layerwise.train.recipe import Recipe, Settings


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


Losses = Callable[[str, float, int], float]


@dataclass(frozen=True)
class Entry:
    loss: float
    kind: str = "validation"


@dataclass(frozen=True)
class PlantedTrainings:
    losses: Losses
    tried: list[RecipeTraining]
    trainings: tuple[RecipeTraining, ...] = ()

    def __iter__(self) -> Any:
        yield self
        self.tried.extend(self.trainings)
        return [self._record(each) for each in self.trainings]

    def _record(self, training: RecipeTraining) -> Any:
        settings = training.recipe.settings
        loss = self.losses(training.recipe.arm, settings.learning_rate, settings.batch_size)
        return type("Record", (), {"history": (Entry(9.0), Entry(loss))})()


def tune(
    losses: Losses, rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3), batches: tuple[int, ...] = (128, 640), *arms: str
) -> tuple[dict[str, Settings], list[Score], list[RecipeTraining]]:
    recipes = tuple(Recipe(arm, Settings()) for arm in arms or ("layershuffle",))
    unit = PlantedTrainings(losses, [])
    steps = SettingsGrid(rates, batches).choose(recipes, unit, Silent())  # type: ignore[arg-type]
    try:
        while True:
            next(steps)
    except StopIteration as end:
        tuned, rows = end.value
    return {each.arm: each.settings for each in tuned}, rows, unit.tried


def bowl(rate: float, batch: int) -> Losses:
    return lambda arm, own, size: 1.0 + abs(own - rate) / rate + 0.1 * (size != batch)


@pytest.mark.parametrize("batch", [128, 640])
@pytest.mark.parametrize("rate", [1e-4, 3e-4, 1e-3])
def test_the_planted_point_is_chosen(rate: float, batch: int) -> None:
    tuned, rows, _ = tune(bowl(rate, batch))
    assert (tuned["layershuffle"].learning_rate, tuned["layershuffle"].batch_size) == (rate, batch)
    (chosen,) = (row for row in rows if row.metric.startswith("chosen"))
    assert (chosen.amount, chosen.other) == (rate, batch)


def test_every_method_is_tried_at_the_same_points_and_chooses_for_itself() -> None:
    tuned, _, tried = tune(
        lambda arm, rate, batch: bowl(3e-4, 640 if arm == "layerdrop" else 128)(arm, rate, batch),
        (1e-4, 3e-4, 1e-3),
        (128, 640),
        "layershuffle",
        "layerdrop",
    )
    assert {arm: each.batch_size for arm, each in tuned.items()} == {"layershuffle": 128, "layerdrop": 640}
    points = {
        arm: {
            (each.recipe.settings.learning_rate, each.recipe.settings.batch_size)
            for each in tried
            if each.recipe.arm == arm
        }
        for arm in tuned
    }
    assert points["layershuffle"] == points["layerdrop"]
    assert {each.seed for each in tried} == {1000}
    assert all(each.folder.startswith("pilot/") for each in tried)
    assert len({each.folder for each in tried}) == len(tried)


def test_a_rate_at_an_end_is_looked_beyond_and_is_called_not_tuned_where_it_stays_there() -> None:
    tuned, rows, tried = tune(lambda arm, rate, batch: 1e-4 / rate, (1e-4, 1e-3), (128,))
    most = max(each.recipe.settings.learning_rate for each in tried)
    assert most > 1e-3
    assert tuned["layershuffle"].learning_rate == most
    assert [row.metric for row in rows][-1] == "chosen_at_end"


def test_one_rate_alone_is_not_swept() -> None:
    _, _, tried = tune(bowl(1e-3, 640), (1e-4,), (128, 640))
    assert [(each.recipe.settings.learning_rate, each.recipe.settings.batch_size) for each in tried] == [
        (1e-4, 128),
        (1e-4, 640),
    ]


@dataclass(frozen=True)
class PlantedSplits:
    name: str = "images"
    origin: str = ""
    selects_on_reported: bool = False
    test: tuple[int, ...] = ()


def test_what_is_reported_chooses_nothing() -> None:
    held_out = PlantedSplits("held out")
    own: Any = PlantedSplits()
    assert splits_of_trials(own, lambda: held_out) is own  # type: ignore[arg-type, return-value]
    reported: Any = replace(own, selects_on_reported=True, origin="train, reported on all of val")
    assert splits_of_trials(reported, lambda: held_out) is held_out  # type: ignore[arg-type, return-value, comparison-overlap]
    with pytest.raises(LayerwiseError, match="leave out --select-on reported"):
        splits_of_trials(replace(reported, origin=""), lambda: held_out)  # type: ignore[arg-type, return-value]


def test_options_that_say_the_same_are_refused() -> None:
    def training(**options: Any) -> RobustTraining:
        return RobustTraining(methods=("layershuffle",), model="demo-vit", **options)

    assert SettingsGrid.of(training(), Settings()) is None
    assert SettingsGrid.of(training(batch_sizes=(640, 128)), Settings()) == SettingsGrid((1e-4,), (128, 640))
    for options in ({"learning_rate": 1e-3, "learning_rates": (1e-3,)}, {"batch_size": 8, "batch_sizes": (8, 16)}):
        with pytest.raises(LayerwiseError, match="give one of them"):
            training(**options)
