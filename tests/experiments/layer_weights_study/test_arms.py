"""The study of layer weights: its arms differ in one thing each, and its rows say what was planted and no more."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from layerwise.data.text.wordpiece import train_wordpiece
from layerwise.experiments.layer_weights_study import arms as study
from layerwise.experiments.layer_weights_study.convergence import study_tuning_convergence
from layerwise.measure.cost.overhead import Overhead
from layerwise.results.rows import Score
from layerwise.train.pretrain.recipe import new_model, pretraining_recipe
from row_names import named

TOKENIZER = train_wordpiece(["The cat saw the dog."] * 10, vocabulary=270)


def models(measure: str, task: str, metric: str, **arms: list[float]) -> list[Score]:
    """Rows of models: the seeds' values of each arm, and the arm's own row, which is not to be counted."""
    names = {arm: arm.replace("_", "-") for arm in arms}
    rows = [
        Score(measure, metric, value, task=task, arm=names[arm], seed=seed)
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]
    return rows + [Score(measure, metric, 99.0, task=task, arm=names[arm]) for arm in arms]


LTG = [3.0, 3.4, 3.2, 3.1]
NEARLY = [0.001, -0.001, 0.001, -0.001]
ELC, IN_TIME = ([x + gap + more for x, more in zip(LTG, NEARLY, strict=True)] for gap in (-0.1, 0.2))
LOSSES = models("masked_lm", "all", "nll", ltg=LTG, elc=ELC, elc_seconds=IN_TIME)


def found(rows: list[Score]) -> dict[tuple[str, str, str | None], Score]:
    return {(named(row), row.task, row.condition): row for row in study.difference_rows(rows)}


def test_differences_are_paired_by_seed_and_told_on_their_terms() -> None:
    rows = found(LOSSES)
    assert {key: round(row.value, 6) for key, row in rows.items()} == {
        ("elc - ltg", "masked_lm", "tokens"): -0.1,
        ("elc - ltg", "masked_lm", "seconds"): 0.2,
    }
    assert all(row.p is not None and row.p < 1e-5 for row in rows.values())


def test_p_are_corrected_over_the_arms_of_a_question() -> None:
    rng = np.random.default_rng(0)
    noisy = {arm: list(3.0 + rng.normal(0, 0.1, 4)) for arm in ("ltg", "elc", "zero", "denseformer")}
    rows = study.difference_rows(models("masked_lm", "all", "nll", **noisy))
    assert len(rows) == 3
    least = min(rows, key=lambda row: row.p or 1.0)
    assert least.p_adjusted == pytest.approx(min(1.0, 3 * (least.p or 1.0)))
    assert all((row.p_adjusted or 0.0) >= (row.p or 0.0) for row in rows)
    assert all(row.mde is not None and row.mde > 0 for row in rows)


def test_tasks_of_a_kind_are_averaged_within_a_model_and_fine_tunings_left_alone() -> None:
    rows = models("msgs-ours", "control main_verb", "mcc", ltg=[0.2, 0.4], elc_kept=[0.4, 0.6])
    rows += models("msgs-ours", "control length", "mcc", ltg=[0.0, 0.0], elc_kept=[1.0, 1.0])
    of = {"task": "control main_verb", "arm": "ltg", "seed": 0}
    rows += [Score("msgs-ours", "mcc", 7.0, other=0, **of), Score("msgs-ours", "x", 7.0, **of)]
    assert {key: round(row.value, 6) for key, row in found(rows).items()} == {
        ("elc-kept - ltg", "control tasks", "tokens"): round(0.7 - 0.1, 6)
    }


def test_tasks_of_glue_count_alike_and_each_by_its_first_metric() -> None:
    rows = models("glue", "cola", "mcc", ltg=[0.1, 0.2], ltg_rewired=[0.3, 0.4])
    rows += models("glue", "rte", "accuracy", ltg=[0.5, 0.5], ltg_rewired=[0.5, 0.5])
    rows += models("glue", "cola", "accuracy", ltg=[7.0, 7.0], ltg_rewired=[9.0, 9.0])
    assert {key: round(row.value, 6) for key, row in found(rows).items()} == {
        ("ltg-rewired - ltg", "glue", "tokens"): 0.1
    }


def test_the_curves_of_fine_tuning_are_compared_by_arm_and_seed() -> None:
    rows = []
    for arm, slower in (("ltg", 1), ("elc-kept", 2), ("elc-seconds", 3)):
        for seed in range(2):
            of = {"task": "control length", "arm": arm, "seed": seed, "other": 0}
            points = {slower: 0.5, 10 * slower: 0.7}
            rows += [Score("learning_curve", "mcc", x, amount=float(n), **of) for n, x in points.items()]
            rows.append(Score("learning_curve", "step_seconds", 0.5, **of))
    ratios = [row for row in study_tuning_convergence(rows, 0.6) if row.metric == "ratio"]
    compared = {(named(row), row.task, row.condition): row for row in ratios}
    assert set(compared) == {("elc-kept - ltg", "control length", cost) for cost in ("steps", "seconds")}
    assert all(row.value == pytest.approx(2) for row in compared.values())


def test_learned_weights_are_judged_against_the_same_unlearned() -> None:
    rows = found(
        models("masked_lm", "all", "nll", ltg=LTG, elc=[x - 0.1 for x in LTG], elc_frozen=[x + 0.2 for x in LTG])
    )
    assert {name: round(row.value, 6) for (name, *_), row in rows.items()} == {
        "elc - ltg": -0.1, "elc-frozen - ltg": 0.2, "elc - elc-frozen": -0.3,
    }  # fmt: skip
    own = rows["elc - elc-frozen", "masked_lm", "tokens"]
    assert own.p_adjusted == own.p, "it is a question of its own"


def test_without_a_backbone_nothing_is_compared() -> None:
    assert study.difference_rows(models("masked_lm", "all", "nll", elc=[1.0, 2.0], zero=[1.0, 2.0])) == []


def test_costs_are_ratios_within_rounds() -> None:
    slow = np.array([1.0, 4.0, 1.0, 9.0, 2.0, 1.0])
    rows = study.cost_rows({"ltg": Overhead(slow, slow, 100), "elc": Overhead(1.25 * slow, 1.5 * slow, 110)})
    assert {row.task: row.value for row in rows} == pytest.approx(
        {"training step": 1.25, "forward pass": 1.5, "memory of a step": 1.1}
    )
    assert {(named(row), row.metric) for row in rows} == {("elc - ltg", "ratio")}


def test_arms_differ_from_their_kind_in_one_thing() -> None:
    arms = {each.arm: each for each in study.arms("tiny", steps=40)}
    assert list(arms) == ["ltg", "elc", "zero", "elc-identity", "elc-frozen", "denseformer"]

    def differences(one: str, other: str) -> set[str]:
        left, right = asdict(arms[one]), asdict(arms[other])
        return {name for name in left if left[name] != right[name]}

    assert differences("elc", "ltg") == {"arm", "variant"} == differences("denseformer", "ltg")
    assert differences("elc-identity", "elc") == {"arm", "initialisation"}
    assert differences("elc-frozen", "elc") == {"arm", "frozen_layer_weights"}


def test_equal_seconds_are_fewer_steps_of_a_slower_arm() -> None:
    later = study.at_equal_seconds(pretraining_recipe("tiny", "elc", steps=100), 1.25)
    assert (later.arm, later.steps) == ("elc-seconds", 80)


def test_held_weights_are_all_that_is_held() -> None:
    model = new_model(pretraining_recipe("tiny", "elc", arm="elc-frozen", frozen_layer_weights=True), TOKENIZER)
    held = {name for name, each in model.named_parameters() if not each.requires_grad}
    assert held == {name for name, _ in model.named_parameters() if name.endswith(".scalars")} != set()
