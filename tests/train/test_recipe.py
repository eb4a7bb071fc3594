"""Recipes of the training methods."""

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from layerwise.errors import PlanError, TrainError
from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, Failout, Fixed, Sampler, Shuffle, node_layout
from layerwise.train.methods import (
    METHODS,
    READ_BY,
    LayerMixingOptions,
    Options,
    PositionOptions,
    PredictionOptions,
    recipe,
)
from layerwise.train.recipe import Recipe, Settings, TrainingExtension

DEPTH = 12


@pytest.mark.parametrize(
    ("method", "training", "validation", "extension"),
    [
        ("baseline", Fixed(), Fixed(), TrainingExtension()),
        ("sequential", Fixed(), Fixed(), TrainingExtension()),
        ("layershuffle", Shuffle(), Shuffle(), TrainingExtension()),
        ("layershuffle-position", Shuffle(), Shuffle(), PositionOptions()),
        ("layershuffle-predict", Shuffle(), Shuffle(), PredictionOptions()),
        ("layerdrop", Drop(0.2), Fixed(), TrainingExtension()),
        ("layerdrop-scratch", Drop(0.2), Fixed(), TrainingExtension()),
        ("layershuffle-layerdrop", Drop(0.2, of=Shuffle()), Shuffle(), TrainingExtension()),
        ("failout", Failout(((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)), 0.2), Fixed(), TrainingExtension()),
        ("wiring-softmax", Fixed(), Fixed(), LayerMixingOptions("softmax", "biased")),
        ("wiring-identity", Fixed(), Fixed(), LayerMixingOptions("free")),
        ("retrained-3", Fixed(Plan.of((2, 6, 10))), Fixed(Plan.of((2, 6, 10))), TrainingExtension()),
    ],
)
def test_methods_match_their_papers(
    method: str, training: Sampler, validation: Sampler, extension: TrainingExtension
) -> None:
    found = recipe(method, Options(Settings()), DEPTH)
    assert (found.variant, found.sampler, found.validation, found.extension) == (
        method,
        training,
        validation,
        extension,
    )
    assert found.from_scratch == (method == "layerdrop-scratch")


def test_epochs_of_the_baseline_and_of_training_from_scratch() -> None:
    settings = Settings(epochs=8, from_scratch_factor=2.5)
    assert recipe("baseline", Options(settings), DEPTH).settings.epochs == 1
    assert recipe("baseline", Options(replace(settings, epochs=0.5)), DEPTH).settings.epochs == 0.5
    assert recipe("layerdrop-scratch", Options(settings), DEPTH).settings.epochs == 20
    others = set(METHODS) - {"baseline", "layerdrop-scratch"}
    assert {recipe(method, Options(settings), DEPTH).settings for method in others} == {settings}


@pytest.mark.parametrize("per_epoch", [1, 7, 49, 633, 997, 70_000])
def test_epochs_convert_exactly_to_steps(per_epoch: int) -> None:
    """3 / 633 * 633 is 3.0000000000000004."""
    wanted = range(1, 1001)
    assert [Settings(epochs=steps / per_epoch, batch_size=2).steps(2 * per_epoch) for steps in wanted] == list(wanted)
    assert Settings(epochs=1.5 / per_epoch, batch_size=2).steps(2 * per_epoch) == 2


GIVEN: dict[str, dict[str, Any]] = {
    "drop_rate": {"drop_rate": 0.5},
    "max_shift": {"max_shift": 2},
    "drop_sync": {"drop_sync": "per-rank"},
    "position_table": {"extensions": (PositionOptions(table="shared"),)},
    "position_dropout": {"extensions": (PositionOptions(dropout=0.1),)},
    "prediction_loss": {"extensions": (PredictionOptions(total="mean"),)},
    "prediction_token": {"extensions": (PredictionOptions(reads="mean"),)},
}


@pytest.mark.parametrize("option", GIVEN)
def test_methods_read_only_their_registered_options(option: str) -> None:
    assert set(READ_BY) == set(GIVEN)
    for method in METHODS:
        changes = recipe(method, Options(), DEPTH) != recipe(method, Options(**GIVEN[option]), DEPTH)
        is_drawn = recipe(method, Options(), DEPTH).sampler != Fixed()
        assert changes == (method in READ_BY[option]) or (option == "drop_sync" and not is_drawn)


POSITIVE = ("epochs", "batch_size", "gradient_accumulation_steps", "learning_rate", "evals", "from_scratch_factor")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: recipe("layershufle", Options(), DEPTH), "unknown training method 'layershufle'.*layershuffle"),
        *((lambda name=name: Settings(**{name: 0}), f"{name} must be above 0") for name in POSITIVE),
        (
            lambda: Settings(batch_size=10, gradient_accumulation_steps=4),
            "must be divisible by gradient_accumulation_steps",
        ),
        (lambda: Drop(1.0), r"the share of layers dropped must be a probability in \[0, 1\)"),
        (lambda: recipe("layershuffle", Options(), 1).sampler.draw(1, Random(0)), "layer"),
    ],
)
def test_invalid_recipes_are_rejected(make: Callable[[], object], words: str) -> None:
    with pytest.raises((PlanError, TrainError), match=words):
        make()


class _Unknown:
    def draw(self, depth: int, chance: Random) -> Plan:
        return Plan.of((0,))

    def __str__(self) -> str:
        return "unknown"


@pytest.mark.parametrize(
    ("sampler", "skips_layers"),
    [
        (Fixed(), False),
        (Fixed(Plan.of((0, 2))), True),
        (Shuffle(), False),
        (Drop(0.5), True),
        (Drop(0.5, preserve=True), False),
        (Drop(0.5, of=Failout(node_layout(4, 2), 0.5), preserve=True), True),
        (Failout(node_layout(4, 2), 0.5), True),
        (Failout(node_layout(4, 2), 0.5, preserve=True), False),
        (_Unknown(), True),
    ],
    ids=str,
)
def test_recipes_that_skip_layers(sampler: Sampler, skips_layers: bool) -> None:
    assert Recipe("any", Settings(), sampler).skips_layers == skips_layers


def test_different_recipes_have_different_records() -> None:
    settings = Settings()
    base = recipe("layershuffle", Options(settings), DEPTH)
    others = [
        replace(base, sampler=Shuffle(reach=2)),
        replace(base, validation=Fixed()),
        replace(base, extension=PositionOptions()),
        replace(base, ranks="per-rank"),
        replace(base, settings=replace(settings, learning_rate=2e-4)),
        replace(base, sampler=Drop(0.2, of=Shuffle())),
        replace(base, sampler=Drop(0.2, of=Shuffle(), preserve=True)),
        replace(base, sampler=Drop(0.25, of=Shuffle())),
        replace(base, sampler=Failout(((0,), (1,)), 0.2)),
        replace(base, sampler=Failout(((0,), (1,), (2,)), 0.2)),
    ]
    records = [json.dumps(one.to_json(), sort_keys=True) for one in (base, *others)]
    assert len(set(records)) == len(records)
