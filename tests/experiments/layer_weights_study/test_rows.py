"""What a study of layer weights answers: its rows say what was planted and no more."""

import numpy as np
import pytest

from layerwise.experiments.layer_weights_study.arms import bias_arms, share_arm
from layerwise.experiments.layer_weights_study.rows import (
    answers,
    bias_rows,
    cost_rows,
    difference_rows,
    share_rows,
    study_tuning_convergence,
)
from layerwise.measure.cost.overhead import Overhead
from layerwise.results.rows import Score
from row_names import named
from tier import by_tier


def models(measure: str, task: str, metric: str, **arms: list[float]) -> list[Score]:
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
    return {(named(row), row.task, row.condition): row for row in difference_rows(rows)}


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
    rows = difference_rows(models("masked_lm", "all", "nll", **noisy))
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
    ratios = [row for row in study_tuning_convergence(rows) if row.metric == "ratio"]
    compared = {(named(row), row.task, row.condition): row for row in ratios}
    assert set(compared) == {("elc-kept - ltg", "control length", cost) for cost in ("steps", "seconds")}
    assert all(row.value == pytest.approx(2) for row in compared.values())


def test_learned_weights_are_judged_against_the_same_unlearned() -> None:
    rows = found(
        models("masked_lm", "all", "nll", ltg=LTG, elc=[x - 0.1 for x in LTG], elc_frozen=[x + 0.2 for x in LTG])
    )
    assert {name: round(row.value, 6) for (name, *_), row in rows.items()} == {
        "elc - ltg": -0.1,
        "elc-frozen - ltg": 0.2,
        "elc - elc-frozen": -0.3,
    }
    own = rows["elc - elc-frozen", "masked_lm", "tokens"]
    assert own.p_adjusted == own.p, "it is a question of its own"


def test_without_a_backbone_nothing_is_compared() -> None:
    assert difference_rows(models("masked_lm", "all", "nll", elc=[1.0, 2.0], zero=[1.0, 2.0])) == []


def test_costs_are_ratios_within_rounds() -> None:
    slow = np.array([1.0, 4.0, 1.0, 9.0, 2.0, 1.0])
    rows = cost_rows({"ltg": Overhead(slow, slow, 100), "elc": Overhead(1.25 * slow, 1.5 * slow, 110)})
    assert {row.task: row.value for row in rows} == pytest.approx(
        {"training step": 1.25, "forward pass": 1.5, "memory of a step": 1.1}
    )
    assert {(named(row), row.metric) for row in rows} == {("elc - ltg", "ratio")}


BIASES = bias_arms((0, 0.5, 1, 2, 4))


def biased(effect: dict[float, float], seeds: int = 3, noise: float = 0.004, run: int = 0) -> list[Score]:
    chance = np.random.default_rng(run)
    shared = 3 + 0.05 * chance.standard_normal(seeds)
    return [
        Score("masked_lm", "nll", shared[seed] + effect[bias] + noise * chance.normal(), arm=arm, seed=seed)
        for arm, bias in BIASES.items()
        for seed in range(seeds)
    ]


def on_grid(rows: list[Score]) -> dict[tuple[str, str], Score]:
    return {(named(row), row.metric): row for row in bias_rows(rows, BIASES)}


def test_two_biases_are_no_grid() -> None:
    assert bias_rows(biased(dict.fromkeys(BIASES.values(), 0.0)), bias_arms((0, 1))) == []


def test_every_arm_has_its_bias_and_its_mean() -> None:
    rows = on_grid(biased({bias: 0.1 * bias for bias in BIASES.values()}, noise=0.0))
    assert [rows[arm, "value"].amount for arm in BIASES] == [0, 0.5, 1, 2, 4]
    assert rows["elc-bias-4", "value"].value - rows["zero", "value"].value == pytest.approx(0.4)
    assert rows["all", "slope"].value == pytest.approx(0.1)


@pytest.mark.simulated
def test_a_slope_a_peak_and_nothing() -> None:
    runs = by_tier(fast=60, nightly=200)
    truths = {
        "slope": {bias: 0.01 * bias for bias in BIASES.values()},
        "peak": {bias: -0.03 * (bias == 1) for bias in BIASES.values()},
        "nothing": dict.fromkeys(BIASES.values(), 0.0),
    }
    share = {}
    for truth, effect in truths.items():
        grids = [on_grid(biased(effect, run=run)) for run in range(runs)]
        for metric in ("slope", "differ"):
            share[truth, metric] = sum((each["all", metric].p_adjusted or 1) < 0.05 for each in grids) / runs
    assert share["slope", "slope"] >= 0.95
    assert share["peak", "differ"] >= 0.95
    assert max(share["nothing", "slope"], share["nothing", "differ"]) <= 0.09


def on_shares(gain: dict[float, float]) -> list[Score]:
    rows = []
    for share, gap in gain.items():
        for seed, own in enumerate((3.0, 3.1, 3.3)):
            value = own - share
            rows.append(Score("masked_lm", "nll", value, arm=share_arm("ltg", share), seed=seed))
            timed = value - gap - 0.001 * seed
            rows.append(Score("masked_lm", "nll", timed, arm=share_arm("elc", share), seed=seed))
    return rows


def test_gains_and_what_a_halving_adds_to_them() -> None:
    rows = on_shares({0.25: 0.3, 0.5: 0.2, 1.0: 0.1})
    found = {(named(row), row.amount): row for row in share_rows(rows)}
    assert found["ltg", 0.5].value == pytest.approx(3.4 / 3 * 1 + 2.0 - 0.5, abs=0.01)
    gaps = {share: found["elc - ltg", share] for share in (0.25, 0.5, 1.0)}
    assert {share: round(row.value, 3) for share, row in gaps.items()} == {0.25: -0.301, 0.5: -0.201, 1.0: -0.101}
    assert all((row.p_adjusted or 0) >= (row.p or 1) for row in gaps.values())
    assert found["elc - ltg", None].value == pytest.approx(-0.1)


def test_shares_are_compared_with_each_other_alone() -> None:
    assert set(answers(on_shares({0.5: 0.1, 1.0: 0.1}))["masked_lm"]) == {"ltg", "elc"}
    assert share_rows(on_shares({1.0: 0.1})) == []
