import math
import random
from dataclasses import replace

import numpy as np
import pytest

from layerwise.errors import MeasureError
from layerwise.measure.stats import statistics
from layerwise.measure.stats.effects import compute_effects, describe_test
from layerwise.results.rows import Loss, Score

BASE, SAME, WORSE, NOISE = "0-3", "0-3 (again)", "0-2", "3-0"


def losses(task: str = "prose", documents: int = 30, windows: int = 2, seed: int = 0) -> list[Loss]:
    generator = np.random.default_rng(seed)
    rows = []
    for document in range(documents):
        for window in range(windows):
            tokens = int(generator.integers(20, 200))
            base = float(tokens * generator.normal(2.0, 0.3))
            planted = {BASE: 0.0, SAME: 0.0, WORSE: generator.normal(0.2, 0.05), NOISE: generator.normal(0.0, 0.05)}
            rows += [
                Loss(plan, task, f"d{document:02}", window, base + tokens * float(extra), tokens, tokens // 2)
                for plan, extra in planted.items()
            ]
    return rows


def answers(right: dict[str, list[bool]], windows: int = 1) -> list[Loss]:
    return [
        Loss(plan, "sums", f"d{number // windows:02}", number % windows, 1.0 if good else 3.0, 4, 4 if good else 3)
        for plan, goods in right.items()
        for number, good in enumerate(goods)
    ]


def table(scores: list[Score], task: str = "prose") -> dict[tuple[str, str], Score]:
    return {(score.metric, str(score.plan)): score for score in scores if score.task == task}


def test_planted_effects_are_found_without_false_positives() -> None:
    rows = losses()
    found = table(compute_effects(rows, BASE))
    worse, noise, same = (found["delta_nll", plan] for plan in (WORSE, NOISE, SAME))
    assert worse.low < 0.2 < worse.high
    assert worse.p_adjusted < 0.001
    assert noise.p_adjusted > 0.05
    assert (same.value, same.low, same.high, same.p, same.p_adjusted) == (0.0, 0.0, 0.0, 1.0, 1.0)
    assert abs(noise.value) < found["null_band", NOISE].value < worse.value
    assert 0 < noise.mde < worse.value


def test_values_are_token_weighted() -> None:
    rows = losses()
    found = table(compute_effects(rows, BASE))
    for plan in (BASE, SAME, WORSE, NOISE):
        mine = [row for row in rows if row.plan == plan]
        tokens = sum(row.tokens for row in mine)
        score = found["nll", plan]
        assert score.value == pytest.approx(math.fsum(row.nll for row in mine) / tokens, rel=1e-12)
        assert (score.documents, score.tokens) == (30, tokens)
        assert found["token_accuracy", plan].value == pytest.approx(sum(row.hits for row in mine) / tokens)
        if plan != BASE:
            difference = score.value - found["nll", BASE].value
            assert found["delta_nll", plan].value == pytest.approx(difference, abs=1e-12)


def test_p_and_resolution_are_adjusted_over_plans_of_a_task() -> None:
    rows = losses()
    three = table(compute_effects(rows, BASE))
    one = table(compute_effects([row for row in rows if row.plan in {BASE, NOISE}], BASE))
    tokens = np.array([row.tokens for row in rows if row.plan == BASE]).reshape(30, 2).sum(axis=1)
    units = tokens.sum() ** 2 / np.square(tokens).sum()
    three_plans, one_plan = (statistics.minimum_detectable_effect(1.0, units, comparisons=plans) for plans in (3, 1))
    resolutions = [part["delta_nll", NOISE].mde or 0.0 for part in (three, one)]
    assert resolutions[0] == pytest.approx(resolutions[1] * float(three_plans / one_plan))
    plans = [SAME, WORSE, NOISE]
    raw, adjusted = ([getattr(three["delta_nll", plan], name) for plan in plans] for name in ("p", "p_adjusted"))
    assert adjusted == statistics.holm(raw).tolist()


def test_rows_depend_on_the_seed_but_not_on_input_order() -> None:
    rows = losses()
    shuffled = random.Random(1).sample(rows, len(rows))
    assert compute_effects(rows, BASE, seed=3) == compute_effects(shuffled, BASE, seed=3)
    assert compute_effects(rows, BASE, seed=3) != compute_effects(rows, BASE, seed=4)


def test_tasks_are_pooled_without_changing_their_rows() -> None:
    prose, code = losses("prose"), losses("code", seed=1)
    both = compute_effects(prose + code, BASE)
    assert [score for score in both if score.task == "prose"] == compute_effects(prose, BASE)
    pooled, apart = table(both, "all"), table(both)
    assert pooled["delta_nll", WORSE].documents == 60
    assert pooled["nll", BASE].value == pytest.approx(
        sum(row.nll for row in prose + code if row.plan == BASE) / sum(row.tokens for row in prose + code) * 4
    )
    pooled_resolution, mde = pooled["delta_nll", NOISE].mde, apart["delta_nll", NOISE].mde
    assert pooled_resolution < mde
    assert not table(compute_effects(prose, BASE), "all")


def test_few_documents_use_windows_then_values_without_interval() -> None:
    by_window = table(compute_effects(losses(documents=5, windows=4), BASE))["delta_nll", WORSE]
    assert by_window.documents == 5
    assert by_window.low is not None
    scores = compute_effects(losses(documents=3, windows=2), BASE)
    assert {score.metric for score in scores} == {"delta_nll", "nll", "token_accuracy"}
    for score in scores:
        evidence = (score.low, score.high, score.p, score.p_adjusted, score.mde)
        assert evidence == (None,) * 5
        assert score.documents == 3


def test_exact_match_of_independent_answers_matches_paired_proportions() -> None:
    right = {
        BASE: [True] * 15 + [False] * 5,
        WORSE: [False] * 12 + [True] * 4 + [False] * 4,
        SAME: [True] * 15 + [False] * 5,
    }
    found = table(compute_effects(answers(right), BASE, answer_tasks=["sums"]), "sums")
    assert found["exact_match", BASE].value == 0.75
    assert found["exact_match", BASE].low == pytest.approx(0.5313, abs=1e-4)  # Wilson, 15 of 20
    assert found["exact_match", BASE].high == pytest.approx(0.8881, abs=1e-4)
    worse, same = found["delta_exact_match", WORSE], found["delta_exact_match", SAME]
    assert worse.value == (1 - 12) / 20
    # 13 questions changed, 12 for the worse: the exact two-sided sign test.
    assert worse.p == pytest.approx(2 * (1 + 13) / 2**13, rel=1e-12)
    assert same.low < 0.0 < same.high, "20 answers in common do not prove that all would be"
    assert same.p == 1.0


def test_exact_match_of_several_answers_is_resampled_by_document() -> None:
    generator = random.Random(2)
    right = {plan: [generator.random() < rate for _ in range(60)] for plan, rate in {BASE: 0.9, WORSE: 0.3}.items()}
    found = table(compute_effects(answers(right, windows=3), BASE, answer_tasks={"sums"}), "sums")
    worse = found["delta_exact_match", WORSE]
    assert worse.value == pytest.approx((sum(right[WORSE]) - sum(right[BASE])) / 60)
    assert worse.documents == 20
    assert worse.high < 0
    assert found["exact_match", BASE].value == sum(right[BASE]) / 60


def test_few_answers_have_values_without_interval() -> None:
    right = {BASE: [True] * 4, WORSE: [True, False] * 2}
    found = table(compute_effects(answers(right), BASE, answer_tasks=["sums"]), "sums")
    assert found["delta_exact_match", WORSE] == replace(found["delta_exact_match", WORSE], value=-0.5, low=None, p=None)
    assert found["exact_match", WORSE].value == 0.5
    assert ("delta_exact_match", BASE) not in found


@pytest.mark.parametrize("documents", [8, 10, 11])
def test_verdict_agrees_with_its_interval(documents: int) -> None:
    """A large effect on few documents of any length is found among 90 plans, by Student's test where flips cannot."""
    generator = np.random.default_rng(documents)
    tokens = generator.integers(20, 400, documents)
    rows = [
        Loss(f"{plan:02}", "t", f"d{at:02}", 0, float(count * (3 + (plan > 0) * generator.normal(2.75, 0.1))), count, 0)
        for plan in range(91)
        for at, count in enumerate(tokens.tolist())
    ]
    found = [row for row in compute_effects(rows, "00", resamples=200) if row.metric == "delta_nll"]
    assert describe_test(documents, 90) is not None
    for row in found:
        assert row.low > 2
        assert row.p_adjusted < 0.05
        assert row.mde < row.value


def test_equal_documents_have_values_without_interval() -> None:
    rows = [Loss(plan, "t", f"d{at:02}", 0, nll, 10, 0) for plan, nll in (("a", 20.0), ("b", 50.0)) for at in range(20)]
    found = compute_effects(rows, "a")
    assert {(row.metric, row.value, row.low, row.p, row.mde) for row in found if row.metric == "delta_nll"} == {
        ("delta_nll", 3.0, None, None, None)
    }
    one = [replace(row, nll=row.nll + 1) if row.document == "d03" else row for row in rows]
    assert next(row.low for row in compute_effects(one, "a") if row.metric == "delta_nll") is not None


def test_unknown_names_suggest_near_matches() -> None:
    with pytest.raises(MeasureError, match="'0-33' is not among the plans: did you mean 0-3"):
        compute_effects(losses(), "0-33")
    with pytest.raises(MeasureError, match="no task 'proze': did you mean prose"):
        compute_effects(losses(), BASE, answer_tasks=["proze"])
