"""Options of robust training, and tuning on planted losses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layerwise.errors import LayerwiseError
from layerwise.plan.samplers import Drop, Shuffle
from layerwise.results.rows import Score
from layerwise.runner.reporter import Silent
from layerwise.runner.trainings import RecipeTraining
from layerwise.studies.robustness import steps
from layerwise.studies.robustness.steps import SettingsGrid, choose_trial_splits
from layerwise.studies.robustness.training_verb import expand_methods, train_robust
from layerwise.studies.robustness.verb import robustness
from layerwise.train.methods import METHODS, PositionOptions
from layerwise.train.recipe import DEFAULTS_BY_MODEL, Recipe, Settings


def planned(*methods: str, **options: Any) -> tuple[Recipe, ...]:
    """Return the recipes that a command would train on the demo."""
    seen: list[tuple[Recipe, ...]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(steps, "train_then_survey", lambda opened, splits, recipes, **_: seen.append(recipes) or Path())
        train_robust("demo-vit", methods=methods, limit=40, reporter=Silent(), **options)
    return seen[0]


def test_all_and_retrained_depths_are_expanded() -> None:
    for methods in (("all", "retrained-9", "6", "3"), ("all", "retrained-9", "retrained-6", "retrained-3")):
        assert expand_methods(methods) == (*METHODS, "retrained-9", "retrained-6", "retrained-3")
    assert expand_methods(("layershuffle", "6", "layershuffle")) == ("layershuffle", "6")


def test_options_change_the_recipe_and_the_baseline_comes_first() -> None:
    baseline, recipe, position = planned(
        "layershuffle-layerdrop",
        "layershuffle-position",
        batch_size=8,
        gradient_accumulation=2,
        learning_rate=0.5,
        epochs=3.0,
        evals=4,
        lr_schedule="constant",
        augmentation="crop+flip",
        precision="bfloat16",
        drop_rate=0.5,
        max_shift=2,
        drop_sync="per-rank",
        position_dropout=0.25,
    )
    assert [baseline.variant, recipe.variant] == ["baseline", "layershuffle-layerdrop"]
    assert recipe.settings == replace(
        DEFAULTS_BY_MODEL["demo-vit"],
        epochs=3.0,
        batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=0.5,
        schedule="constant",
        augmentation="crop+flip",
        precision="bfloat16",
        evals=4,
    )
    assert (recipe.ranks, recipe.sampler) == ("per-rank", Drop(0.5, of=Shuffle(2)))
    assert position.extension == PositionOptions(dropout=0.25)
    assert [each.variant for each in planned("layerdrop", "retrained-3", baseline=False)] == [
        "layerdrop",
        "retrained-3",
    ]


@pytest.mark.parametrize(
    ("methods", "options", "message"),
    [
        ("layershufle", {}, "unknown training method 'layershufle'; did you mean layershuffle"),
        ("layershuffle,dropout", {}, "unknown training method 'dropout'"),
        ("layershuffle,6", {}, "unknown training method '6'"),
        ("elc", {}, "layerwise train elc"),
        ("growth,layershuffle", {}, "layerwise train growth"),
        ("layershuffle", {"drop_rate": 0.5}, "^drop_rate requires one of the methods layerdrop"),
        ("layerdrop", {"max_shift": 2}, "^max_shift requires one of the methods"),
        ("sequential", {"drop_sync": "masked"}, "^drop_sync requires one of the methods"),
        ("layershuffle", {"prediction_token": "mean"}, "^prediction_token requires .* layershuffle-predict"),
        ("layershuffle", {"position_table": "shared"}, "^position_table requires .* layershuffle-position"),
        ("layershuffle", {"position_dropout": 0.1}, "^position_dropout requires .* layershuffle-position"),
        ("baseline", {"evals": 3}, "^evals has no effect on the baseline"),
        ("layerdrop", {"drop_rate": 2.0}, r"the share of layers dropped must be a probability in \[0, 1\)"),
        ("baseline", {"gradient_accumulation": 3}, "must be divisible by gradient_accumulation_steps"),
        (
            "baseline",
            {"learning_rate": 1e-3, "learning_rates": [1e-3]},
            "^learning_rate and learning_rates cannot be combined",
        ),
        ("baseline", {"batch_size": 8, "batch_sizes": [8, 16]}, "^batch_size and batch_sizes cannot be combined"),
    ],
)
def test_invalid_trainings_are_rejected_before_a_model_is_loaded(
    methods: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(LayerwiseError, match=message):
        train_robust("no-such-model", methods=methods, reporter=Silent(), **options)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("model", {"seeds": 2}, "^seeds requires demo-vit"),
        ("demo-vit", {"dtype": "float64"}, "^dtype has no effect on demo-vit"),
        ("run", {"tokenizer": "t"}, "^tokenizer has no effect on a run"),
        ("run", {"run": Path("other")}, "^run must not be given for a run"),
    ],
)
def test_options_without_effect_are_rejected(
    model: str, options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/manifest.json").write_text("{}")
    with pytest.raises(LayerwiseError, match=message):
        robustness(model, reporter=Silent(), **options)


Losses = Callable[[str, float, int], float]


@dataclass(frozen=True)
class PlantedTrainings:
    losses: Losses
    tried: list[RecipeTraining]
    trainings: tuple[RecipeTraining, ...] = ()

    def train(self) -> list[Any]:
        self.tried.extend(self.trainings)
        return [self._record(each) for each in self.trainings]

    def _record(self, training: RecipeTraining) -> Any:
        settings = training.recipe.settings
        loss = self.losses(training.recipe.variant, settings.learning_rate, settings.batch_size)
        return type("Record", (), {"validation_losses": [9.0, loss]})()


def tune(
    losses: Losses, rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3), batches: tuple[int, ...] = (128, 640), *variants: str
) -> tuple[dict[str, Settings], list[Score], list[RecipeTraining]]:
    recipes = tuple(Recipe(variant, Settings()) for variant in variants or ("layershuffle",))
    task: Any = PlantedTrainings(losses, [])
    study: Any = SimpleNamespace(execute=lambda each: each.train(), reporter=Silent())
    tuned, rows = SettingsGrid(rates, batches).choose(recipes, task, study)
    return {each.variant: each.settings for each in tuned}, rows, task.tried


def bowl(rate: float, batch: int) -> Losses:
    return lambda variant, own, size: 1.0 + abs(own - rate) / rate + 0.1 * (size != batch)


@pytest.mark.parametrize("batch", [128, 640])
@pytest.mark.parametrize("rate", [1e-4, 3e-4, 1e-3])
def test_tuning_finds_the_planted_point(rate: float, batch: int) -> None:
    tuned, rows, _ = tune(bowl(rate, batch))
    assert (tuned["layershuffle"].learning_rate, tuned["layershuffle"].batch_size) == (rate, batch)
    (chosen,) = (row for row in rows if row.metric.startswith("chosen"))
    assert (chosen.learning_rate, chosen.batch_size) == (rate, batch)


def test_every_method_is_tuned_separately_on_the_same_points() -> None:
    tuned, _, tried = tune(
        lambda variant, rate, batch: bowl(3e-4, 640 if variant == "layerdrop" else 128)(variant, rate, batch),
        (1e-4, 3e-4, 1e-3),
        (128, 640),
        "layershuffle",
        "layerdrop",
    )
    assert {variant: each.batch_size for variant, each in tuned.items()} == {"layershuffle": 128, "layerdrop": 640}
    points = {
        variant: {
            (each.recipe.settings.learning_rate, each.recipe.settings.batch_size)
            for each in tried
            if each.recipe.variant == variant
        }
        for variant in tuned
    }
    assert points["layershuffle"] == points["layerdrop"]
    assert {each.seed for each in tried} == {1000}
    assert all(each.folder.startswith("pilot/") for each in tried)
    assert len({each.folder for each in tried}) == len(tried)


def test_the_learning_rate_grid_is_extended_at_its_edge() -> None:
    tuned, rows, tried = tune(lambda variant, rate, batch: 1e-4 / rate, (1e-4, 1e-3), (128,))
    most = max(each.recipe.settings.learning_rate for each in tried)
    assert most > 1e-3
    assert tuned["layershuffle"].learning_rate == most
    assert [row.metric for row in rows][-1] == "chosen_at_end"


def test_a_single_learning_rate_is_not_tuned() -> None:
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


def test_trials_never_use_reported_examples() -> None:
    held_out = PlantedSplits("held out")
    own: Any = PlantedSplits()
    assert choose_trial_splits(own, lambda: held_out) is own  # type: ignore[arg-type, return-value]
    reported: Any = replace(own, selects_on_reported=True, origin="train, reported on all of val")
    assert choose_trial_splits(reported, lambda: held_out) is held_out  # type: ignore[arg-type, return-value, comparison-overlap]
    with pytest.raises(LayerwiseError, match="Pass --select-on held-out"):
        choose_trial_splits(replace(reported, origin=""), lambda: held_out)  # type: ignore[arg-type, return-value]


def test_a_grid_has_the_common_setting_for_what_is_not_tuned() -> None:
    assert SettingsGrid.create((), (), Settings()) is None
    assert SettingsGrid.create((), (640, 128), Settings()) == SettingsGrid((1e-4,), (128, 640))
