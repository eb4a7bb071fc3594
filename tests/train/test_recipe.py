"""Recipes: the methods as published, complete, and refused by name where they cannot be."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from random import Random
from typing import Any

import pytest

from layerwise.errors import PlanError, TrainError
from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, Failout, Fixed, Sampler, Shuffle, nodes_of
from layerwise.train.recipe import COMPARED, METHODS, Recipe, Settings, recipe, retrained

DEPTH = 12


def test_the_settings_are_the_papers() -> None:
    paper = Settings()
    assert (paper.betas, paper.epsilon, paper.learning_rate) == ((0.9, 0.999), 1e-6, 1e-4)
    assert (paper.batch, paper.epochs, paper.precision) == (128, 20.0, "float32")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_frozen_recipe_under_its_own_name(method: str) -> None:
    found = recipe(method, Settings(), DEPTH)
    assert found.arm == method
    with pytest.raises(FrozenInstanceError):
        found.arm = "another"  # type: ignore[misc]
    assert json.loads(json.dumps(found.to_json()))["arm"] == method
    found.sampler.draw(DEPTH, Random(0)).check(DEPTH)


@pytest.mark.parametrize(
    ("method", "training", "validation", "variant"),
    [
        ("baseline", Fixed(), Fixed(), "plain"),
        ("sequential", Fixed(), Fixed(), "plain"),
        ("layershuffle", Shuffle(), Shuffle(), "plain"),
        ("layershuffle-position", Shuffle(), Shuffle(), "position"),
        ("layershuffle-predict", Shuffle(), Shuffle(), "predict"),
        ("layerdrop", Drop(0.2), Fixed(), "plain"),
        ("layerdrop-scratch", Drop(0.2), Fixed(), "plain"),
        ("layershuffle-layerdrop", Drop(0.2, of=Shuffle()), Shuffle(), "plain"),
        ("failout", Failout(((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)), 0.2), Fixed(), "plain"),
        ("wiring-softmax", Fixed(), Fixed(), "wiring"),
        ("wiring-identity", Fixed(), Fixed(), "wiring"),
    ],
)
def test_methods_are_as_published(method: str, training: Sampler, validation: Sampler, variant: str) -> None:
    found = recipe(method, Settings(), DEPTH)
    assert (found.sampler, found.validation, found.variant) == (training, validation, variant)
    assert found.from_scratch == (method == "layerdrop-scratch")


def test_epochs_are_one_for_the_baseline_and_more_from_scratch() -> None:
    settings = Settings(epochs=8, scratch=2.5)
    assert recipe("baseline", settings, DEPTH).settings.epochs == 1
    assert recipe("baseline", replace(settings, epochs=0.5), DEPTH).settings.epochs == 0.5
    assert recipe("layerdrop-scratch", settings, DEPTH).settings.epochs == 20
    others = set(METHODS) - {"baseline", "layerdrop-scratch"}
    assert {recipe(method, settings, DEPTH).settings for method in others} == {settings}


def test_wirings_are_as_published_and_not_what_layershuffle_is_compared_with() -> None:
    softmax, identity = (recipe(f"wiring-{name}", Settings(), DEPTH) for name in ("softmax", "identity"))
    assert (softmax.wiring.kind, softmax.wiring.initialisation) == ("softmax", "biased")
    assert identity.wiring.kind == "free"
    assert not any(name.startswith("wiring") for name in COMPARED)
    assert len(COMPARED) == 8


def test_recipes_without_a_wiring_are_written_as_before_there_were_any() -> None:
    assert "wiring" not in recipe("layershuffle", Settings(), DEPTH).to_json()
    assert recipe("wiring-softmax", Settings(), DEPTH).to_json()["wiring"] == {
        "kind": "softmax", "initialisation": "biased", "rate": 10.0,
    }  # fmt: skip


def test_a_retrained_model_is_trained_and_chosen_with_its_layers_alone() -> None:
    found = retrained(Settings(), (0, 4, 8))
    assert found.arm == "retrained-3"
    assert found.sampler == found.validation == Fixed(Plan.of((0, 4, 8)))


def test_a_misspelt_method_is_told_its_neighbours() -> None:
    with pytest.raises(TrainError, match=r"no training method 'layershufle'.*layershuffle"):
        recipe("layershufle", Settings(), DEPTH)


@pytest.mark.parametrize("name", ["epochs", "batch", "accumulation", "learning_rate", "checks", "scratch"])
def test_settings_of_nothing_are_refused(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(TrainError, match=f"{name} is 0; write a number above 0"):
        Settings(**options)


def test_a_batch_in_unequal_pieces_is_refused() -> None:
    with pytest.raises(TrainError, match="a batch of 10 does not fall into 4 equal pieces"):
        Settings(batch=10, accumulation=4)


def test_dropping_everything_is_refused() -> None:
    with pytest.raises(PlanError, match="would leave nothing to run"):
        Drop(1.0)


def test_a_model_of_one_layer_has_no_order() -> None:
    with pytest.raises(PlanError):
        recipe("layershuffle", Settings(), 1).sampler.draw(1, Random(0))


class _Unknown:
    def draw(self, depth: int, chance: Random) -> Plan:
        return Plan.of((0,))

    def __str__(self) -> str:
        return "one that nobody knows"


@pytest.mark.parametrize(
    ("sampler", "leaves_out"),
    [
        (Fixed(), False),
        (Fixed(Plan.of((0, 2))), True),
        (Shuffle(), False),
        (Drop(0.5), True),
        (Drop(0.5, preserve=True), False),
        (Drop(0.5, of=Failout(nodes_of(4, 2), 0.5), preserve=True), True),
        (Failout(nodes_of(4, 2), 0.5), True),
        (Failout(nodes_of(4, 2), 0.5, preserve=True), False),
        (_Unknown(), True),
    ],
    ids=str,
)
def test_a_recipe_knows_whether_parameters_may_go_unused(sampler: Sampler, leaves_out: bool) -> None:
    assert Recipe("any", Settings(), sampler).leaves_out == leaves_out


def test_recipes_that_differ_have_records_that_differ() -> None:
    settings = Settings()
    base = recipe("layershuffle", settings, DEPTH)
    others = [
        replace(base, sampler=Shuffle(reach=2)),
        replace(base, validation=Fixed()),
        replace(base, variant="position"),
        replace(base, ranks="apart"),
        replace(base, settings=replace(settings, learning_rate=2e-4)),
        replace(base, sampler=Drop(0.2, of=Shuffle())),
        replace(base, sampler=Drop(0.2, of=Shuffle(), preserve=True)),
        replace(base, sampler=Drop(0.25, of=Shuffle())),
        replace(base, sampler=Failout(((0,), (1,)), 0.2)),
        replace(base, sampler=Failout(((0,), (1,), (2,)), 0.2)),
    ]
    records = [json.dumps(one.to_json(), sort_keys=True) for one in (base, *others)]
    assert len(set(records)) == len(records)
