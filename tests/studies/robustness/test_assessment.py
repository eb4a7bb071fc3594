"""Surveys: every model is surveyed once, also after interruptions, and their rows."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from conftest import tiny_llama
from layerwise.data.splits import Splits
from layerwise.data.vision.digits import digits
from layerwise.measure.activations import attention_by_position, by_position, embedding
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.interventions.survey import EvaluationGrid, Survey
from layerwise.measure.stats.statistics import wilson
from layerwise.plan import Plan
from layerwise.plan.samplers import SeededSampler, Shuffle
from layerwise.results import Manifest, Run, Score
from layerwise.results.selection import Rows
from layerwise.results.training_record import LogEntry, TrainingRecord
from layerwise.runner.reporter import Silent
from layerwise.runner.training_runs import TrainedModel, make_training_rows
from layerwise.stack import load
from layerwise.studies.robustness.surveys import SurveysUnit, discard_surveys, position_rows
from layerwise.train import position
from layerwise.train.load_trained import Trained
from layerwise.train.methods import PredictionOptions
from measure.planted_classifiers import Listed
from train.tiny_models import tiny_vit

SPLITS = digits(limit=20)
DEPTH = 3
QUESTIONS = EvaluationGrid(orders=3, draws=3)
MANIFEST = Manifest("m", None, "w", "float32", "cpu", "digits", "c", 20, 20, 1, ("robustness",), (), 0)

pytestmark = pytest.mark.usefixtures("flat")


@pytest.fixture(autouse=True)
def few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_position, "UNITS", 2)
    monkeypatch.setattr(embedding, "BATCHES", 2)
    monkeypatch.setattr(attention_by_position, "BATCHES", 2)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Run.create(tmp_path / "run", MANIFEST) as run:
        yield run


class Shelf:
    def __init__(self) -> None:
        self.opened: list[str] = []

    def __call__(self, folder: Path) -> Trained:
        self.opened.append(folder.name)
        stack = load(tiny_vit(seed=sum(map(ord, folder.name))))
        asked = position.attach_prediction(stack, PredictionOptions()) if "predict" in folder.name else None
        return Trained(stack, None, asked)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


Ask = Callable[..., bool]


@pytest.fixture
def ask(run: Run, shelf: Shelf, tmp_path: Path) -> Ask:
    def asked(
        *labels: str, grid: EvaluationGrid = QUESTIONS, splits: Splits = SPLITS, open_model: Any = shelf, how: str = ""
    ) -> bool:
        models = trained_models(tmp_path, *labels)
        return surveys_of(splits, grid, open_model, how).assess(models, run, Silent())

    return asked


def surveys_of(splits: Splits, grid: EvaluationGrid, open_model: Any, how: str = "") -> SurveysUnit:
    stack = load(tiny_vit(seed=0))  # that of the estimate, which is not made here
    return SurveysUnit(lambda folder: (), stack, splits, grid, open_model, how)


def trained_models(folder: Path, *labels: str) -> list[TrainedModel]:
    parts = [(label, *label.split("/")) for label in labels]
    return [
        TrainedModel(variant, int(seed), folder / label.replace("/", "-"), folder / label.replace("/", "-"))
        for label, variant, seed in parts
    ]


def scores(run: Run, measure: str) -> Rows:
    return Rows(run.store.scores(measure))


def test_an_interrupted_survey_resumes_with_the_interrupted_model(ask: Ask, shelf: Shelf) -> None:
    def stopping(folder: Path) -> Trained:
        if folder.name == "sequential-0":
            raise KeyboardInterrupt
        return shelf(folder)

    plain = EvaluationGrid(orders=3, draws=3, layers=False)
    with pytest.raises(KeyboardInterrupt):
        ask("baseline/0", "sequential/0", grid=plain, open_model=stopping)
    assert ask("baseline/0", "sequential/0", grid=plain)
    assert shelf.opened == ["baseline-0", "sequential-0"]


def test_interrupted_inside_measures_resume_with_the_interrupted_variant(ask: Ask, shelf: Shelf, run: Run) -> None:
    variants = ("baseline/0", "layershuffle/0", "sequential/0")

    def stopping(folder: Path) -> Trained:
        if folder.name == "sequential-0" and folder.name in shelf.opened:
            raise KeyboardInterrupt
        return shelf(folder)

    with pytest.raises(KeyboardInterrupt):
        ask(*variants, open_model=stopping)
    shelf.opened.clear()
    assert not ask(*variants)
    assert shelf.opened == ["sequential-0"]
    resumed = {measure: set(run.store.scores(measure)) for measure in ("branches", "attention", "embedding")}
    shelf.opened.clear()
    assert not ask(*variants)
    assert shelf.opened == []
    run.store.replace_scores("branches", [])
    ask(*variants)
    assert resumed == {measure: set(run.store.scores(measure)) for measure in resumed}


def test_a_survey_is_reused_only_for_the_same_grid_data_and_numerics(ask: Ask, tmp_path: Path) -> None:
    plain = EvaluationGrid(orders=3, draws=3, layers=False)
    how = "float32 on cpu, 1 thread"
    for other in (
        {},
        {"grid": replace(plain, orders=4)},
        {"grid": replace(plain, seed=1)},
        {"splits": digits(limit=15)},
        {"how": "bfloat16 on cpu, 1 thread"},
    ):
        asked: dict[str, Any] = {"grid": plain, "how": how, **other}
        assert ask("baseline/0", **asked)
        assert not ask("baseline/0", **asked)
    discard_surveys(trained_models(tmp_path, "baseline/0"))
    assert ask("baseline/0", grid=plain, how=how)


def test_umap_is_used_once_it_is_installed(ask: Ask, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr("layerwise.measure.activations.embedding.find_spec", lambda name: None)
        ask("baseline/0")
        assert not scores(run, "embedding")
        assert len(run.store.notes("embedding")) == 1
        ask("baseline/0")
    assert not scores(run, "embedding")
    assert not ask("baseline/0")
    assert scores(run, "embedding")
    assert run.store.notes("embedding") == []


def test_rows_of_two_variants_match_direct_evaluation(ask: Ask, run: Run, shelf: Shelf) -> None:
    asked = ("baseline/0", "baseline/1", "layershuffle/0", "layershuffle/1")
    assert ask(*asked)
    assert {*shelf.opened} == {each.replace("/", "-") for each in asked}
    before = run.store.scores()
    shelf.opened.clear()
    assert not ask(*asked)
    assert shelf.opened == []
    assert run.store.scores() == before
    found = scores(run, "robustness")
    assert found.value(metric="accuracy", against="chance") == 0.1
    assert found.value(metric="classes") == 10
    stack = shelf(Path("layershuffle-1")).stack
    expected = evaluate(stack, Plan.parse("1"), SPLITS.test, SPLITS.collate)
    one = found.where(variant="layershuffle", seed=1, strategy="even", kept=1, order="sequential")
    assert one.value(metric="accuracy") == expected.accuracy
    assert one.value(metric="nll") == pytest.approx(expected.mean_nll)
    assert found.where(variant="layershuffle", order="random", metric="accuracy_above", against="baseline")
    assert len(scores(run, "orders")) == 4 * len(scores(run, "orders").axis("plan")) * 2
    for measure in ("branches", "contribution", "embedding"):
        assert scores(run, measure).axis("variant") == ("baseline", "layershuffle")


def test_retrained_models_form_one_variant_and_are_evaluated_at_their_depth(ask: Ask, run: Run) -> None:
    ask("baseline/0", "retrained-2/0", "retrained-1/0")
    own = {(row.kept, row.strategy, row.order) for row in scores(run, "robustness").where(variant="retrained")}
    assert own == {(2, "even", "sequential"), (2, "even", "random"), (1, "even", "sequential")}
    for measure in ("orders", "contribution", "branches", "embedding"):
        assert scores(run, measure).axis("variant") == ("baseline",)


def test_language_models_are_reported_by_loss(run: Run, tmp_path: Path) -> None:
    ids = torch.randint(3, 97, (8, 9), generator=torch.Generator().manual_seed(0))
    texts = Listed([{"input_ids": row, "labels": row} for row in ids])
    splits = Splits("texts", "t" * 64, texts, texts, texts)
    opened = lambda folder: Trained(load(tiny_llama(DEPTH)), None)  # noqa: E731
    surveys_of(splits, QUESTIONS, opened).assess(trained_models(tmp_path, "llama/0"), run, Silent())
    found = scores(run, "robustness")
    assert found.value(metric="leads") == 0
    (loss,) = found.where(variant="llama", seed=0, order="sequential", metric="nll", layer=None, strategy=None)
    assert loss.tokens == 64
    assert not found.where(metric="accuracy_top5")


@pytest.mark.slow
def test_position_accuracy_matches_the_predictions(ask: Ask, run: Run, shelf: Shelf) -> None:
    ask("layershuffle-predict/0", "layershuffle-predict/1", "baseline/0")
    model = shelf(Path("layershuffle-predict-0"))
    assert model.prediction is not None
    draws = SeededSampler(Shuffle(), DEPTH, 0, stream="position")
    right = dict.fromkeys(range(DEPTH), 0)
    with torch.inference_mode():
        for batch, start in enumerate(range(0, 20, 6)):  # three full batches and one of two images
            images = SPLITS.collate([SPLITS.test[index] for index in range(start, min(start + 6, 20))])
            with model.stack.under(draws.at(batch)):
                model.stack.model(images["pixel_values"])
            for position, logits in model.prediction.predicted:
                right[position] += int((logits.argmax(-1) == position).sum())
    found = scores(run, "position")
    for position, hits in right.items():
        row = found.one(seed=0, position=position)
        assert (row.value, row.low, row.documents) == (pytest.approx(hits / 20), None, 20)
    both = [found.value(seed=seed, position=None) or 0.0 for seed in range(2)]
    assert both[0] == pytest.approx(sum(right.values()) / 60)
    assert found.value(seed=None, position=None, against=None) == pytest.approx(np.mean(both))
    assert found.value(seed=None, position=None, against="chance") == pytest.approx(1 / 3)
    assert found.axis("variant") == ("layershuffle-predict",)


def test_position_intervals_are_over_the_orders_of_all_seeds() -> None:
    asked = np.full(8, 10.0)
    right = {seed: {0: np.array([[10.0, 0.0] * 4, asked]), 1: np.array([asked, asked])} for seed in range(2)}
    found = Rows(position_rows({"predict": right, "baseline": {0: {}}}))
    half = stats.t(7).ppf(0.975) * stats.sem([1.0, 0.0] * 4)
    for seed in (None, 0, 1):
        first, second = (found.one(seed=seed, position=position, against=None) for position in range(2))
        assert (first.value, first.low, first.high) == pytest.approx((0.5, 0.5 - half, 0.5 + half))
        assert (second.value, second.low, second.high) == (1.0, pytest.approx(float(wilson(80, 80).low)), 1.0)
    assert found.value(seed=None, position=None, against=None) == 0.75
    assert found.axis("variant") == ("predict",)


@pytest.mark.slow
def test_every_finding_of_the_paper_has_its_contrasts(ask: Ask, run: Run) -> None:
    run.store.replace_scores("contrast", [Score("contrast", "loss", 0.1, claim="merging")])
    ask(*(f"{variant}/{seed}" for variant in ("baseline", "layershuffle", "layershuffle-predict") for seed in range(2)))
    found = {(row.claim, row.task, row.metric): row for row in scores(run, "contrast")}
    assert {(claim, metric) for claim, _, metric in found} == {
        ("merging", "loss"),
        ("trained_order", "cost"),
        ("trained_order", "gain_above@baseline"),
        ("collapse", "random_order"),
        ("collapse", "in_order"),
        ("position_informed", "random_order"),
        ("positions", "short"),
        ("positions", "short@baseline"),
    } | (
        {("pruning", "lost"), ("pruning", "lost@baseline"), ("pruning", "spared_above@baseline")}
        if ("pruning", "all", "lost") in found
        else set()
    )
    robust = scores(run, "robustness")
    known = scores(run, "position").value(seed=None, position=None, against=None)
    assert found["positions", "all", "short"].value == pytest.approx(0.9999 - (known or 0))
    whole = {"metric": "accuracy", "seed": None, "layer": None, "strategy": None}
    chance = robust.value(**whole, against="chance")
    collapsed = (robust.value(**whole, variant="baseline", order="sequential") or 0) - (chance or 0)
    assert found["collapse", "all", "in_order"].value == pytest.approx(collapsed)


@pytest.mark.slow
def test_a_survey_stores_answers_by_batch(ask: Ask, shelf: Shelf, tmp_path: Path) -> None:
    ask("layershuffle-predict/0", "baseline/0", "layerdrop/0")
    kept = {path.parent.name: Survey.read(path) for path in tmp_path.glob("*/survey-*.npz")}
    assert {name: (bool(survey.positions), bool(survey.probed)) for name, survey in kept.items()} == {
        "layershuffle-predict-0": (True, False),
        "baseline-0": (False, True),
        "layerdrop-0": (False, False),
    }
    assert kept["baseline-0"].probed[0].shape == (2, 4)
    assert kept["baseline-0"].probed[0][1].tolist() == [6, 6, 6, 2]


def test_rows_follow_the_training_record() -> None:
    history = (LogEntry(5, "train", 2.0), LogEntry(10, "train", 1.5), LogEntry(10, "validation", 1.7))
    pedigree = TrainingRecord("sequential", 1, "b", "d", "digits", {}, 10, 2.5, 320, 61.5, 10, history)
    rows = make_training_rows({("sequential", 1): pedigree, ("retrained-6", 0): pedigree})
    own = [row for row in rows if (row.variant, row.seed, row.kept) == ("sequential", 1, None)]
    assert {(row.metric, row.step): row.value for row in own} == {
        ("steps", None): 10,
        ("epochs", None): 2.5,
        ("examples", None): 320,
        ("seconds", None): 61.5,
        ("best_step", None): 10,
        ("train_loss", 5): 2.0,
        ("train_loss", 10): 1.5,
        ("validation_loss", 10): 1.7,
    }
    assert {(row.variant, row.seed, row.kept) for row in rows if row not in own} == {("retrained", 0, 6)}
