import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.contrasts.contrast import Part, Resampled, pair_effects, take_first
from layerwise.measure.stats.effects import ConditionLosses, compare_conditions, compute_effects
from layerwise.measure.stats.grid import (
    WHOLE,
    Piece,
    Strata,
    arrange,
    complete,
    resampling_unit,
    stratified_effects,
    unit_pieces,
)
from layerwise.measure.stats.statistics import Numbers, paired_bootstrap, sign_flips, skewed_interval, student_interval
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.plan import Plan
from layerwise.results.rows import Loss, Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import ABOVE_CHOSEN, AGAIN, GAP
from layerwise.search.confirm import compare_controls, compute_loss_changes, compute_selection_gap


def losses(documents: int = 9, windows: int = 2) -> list[Loss]:
    return [
        Loss(plan, task, f"d{document}", window, 100.0 * index + 10 * document + window, 5 + window, window)
        for index, plan in enumerate(("0-1", "1-0"))
        for task in ("code", "prose")
        for document in range(documents)
        for window in range(windows)
    ]


def test_grid_stores_every_loss_by_plan_and_unit() -> None:
    rows = random.Random(0).sample(losses(), 72)  # in whatever order
    grid = arrange(rows)
    assert grid.plans == ("0-1", "1-0")
    assert grid.tasks() == ("code", "prose")
    for row in rows:
        plan, cell = grid.plans.index(row.plan), grid.cells.index((row.task, row.document, row.window))
        assert (grid.nll[plan, cell], grid.hits[plan, cell], grid.tokens[cell]) == (row.nll, row.hits, row.tokens)


def test_units_are_windows_if_documents_are_few() -> None:
    grid = arrange(losses(documents=3)).of_task("code")
    assert grid.unit() == "window"
    np.testing.assert_array_equal(grid.by_unit(grid.nll), grid.nll)
    assert [resampling_unit(number) for number in (7, 8)] == ["window", "document"]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (
            lambda rows: rows[:-1],
            r"got 0 losses of plan '1-0' on window 1 of document 'd8' \(task 'prose'",
        ),
        (lambda rows: [*rows, rows[0]], "got 2 losses of plan '0-1'"),
        (lambda rows: [*rows[:-1], replace(rows[-1], tokens=9)], "got 9 tokens instead of 6 of plan '1-0'"),
        (lambda rows: [*rows[:-1], replace(rows[-1], nll=float("nan"))], "got a loss of nan nats of plan '1-0'"),
        (lambda rows: [], "no losses to compare"),
    ],
)
def test_unpaired_losses_are_rejected(change: object, part: str) -> None:
    with pytest.raises(MeasureError, match=part):
        arrange(change(losses()))  # type: ignore[operator]


def test_complete_keeps_common_windows() -> None:
    rows = losses()
    kept = complete(rows[:-1])
    assert kept == [row for row in rows if (row.task, row.document, row.window) != ("prose", "d8", 1)]
    assert arrange(kept).tokens.size == 35
    assert complete(rows) == rows
    assert complete(rows[:1] + rows[-1:]) == []


def task_losses(changes: dict[str, list[float]], tokens: dict[str, int]) -> list[Loss]:
    rows = []
    for task, per_token in changes.items():
        for number, change in enumerate(per_token):
            count = tokens[task]
            rows.append(Loss("b", task, str(number), 0, 2.0 * count, count, 0))
            rows.append(Loss("p", task, str(number), 0, (2.0 + change) * count, count, 0))
    return rows


def pieces(sizes: dict[str, int], tokens: dict[str, int]) -> dict[Piece, int]:
    return {(task, str(number), WHOLE): tokens[task] for task, size in sizes.items() for number in range(size)}


def test_one_stratum_matches_students_interval() -> None:
    half = np.random.default_rng(0).normal(0.0, 0.3, size=10)
    draw = 0.1 + np.concatenate([half, -half])  # not skewed
    strata = Strata.from_lengths(pieces({"text": 20}, {"text": 10}))
    found = stratified_effects(arrange(task_losses({"text": draw.tolist()}, {"text": 10})), "b", ["p"], strata, 0.95)[0]
    error = draw.std(ddof=1) / np.sqrt(20)
    assert found.value == pytest.approx(draw.mean())
    assert found.error == pytest.approx(error)
    assert found.freedom == pytest.approx(19)
    assert found.high - found.value == pytest.approx(stats.t(19).ppf(0.975) * error)
    assert found.p() == pytest.approx(stats.ttest_1samp(draw, 0.0).pvalue)


def test_single_document_of_a_third_task_does_not_widen_the_interval() -> None:
    """Large tasks remain separate strata, so that the difference between them is not noise."""
    draw = np.random.default_rng(1).normal(0.0, 0.1, size=(2, 200))
    tokens = dict.fromkeys("abc", 10)
    changes = {"a": draw[0].tolist(), "b": (draw[1] + 1.0).tolist()}
    widths = []
    for each in (changes, {**changes, "c": [0.5]}):
        found = {row.task: row for row in compute_effects(task_losses(each, tokens), "b") if row.metric == "delta_nll"}[
            "all"
        ]
        widths.append(found.high - found.low)
    assert widths[1] < 1.1 * widths[0]
    sizes = {"a": 16, "b": 20, "c": 15, "d": 1}
    assert set(Strata.from_lengths(pieces(sizes, dict.fromkeys("abcd", 1))).weight) == {"a", "b", "the rest"}
    sizes["c"] = 14
    assert set(Strata.from_lengths(pieces(sizes, dict.fromkeys("abcd", 1))).weight) == {"b", "the rest"}


def test_parts_are_weighted_as_the_full_text() -> None:
    """Prose is nine tenths of all tokens, also for a look with equally many answers and prose documents."""
    tokens = {"prose": 90, "answers": 10}
    strata = Strata.from_lengths(pieces({"prose": 16, "answers": 16}, tokens))
    assert strata.weight == {"answers": pytest.approx(0.1), "prose": pytest.approx(0.9)}
    part = arrange(task_losses({"prose": [0.01] * 8, "answers": [5.0] * 16}, tokens))
    assert stratified_effects(part, "b", ["p"], strata, 0.95)[0].value == pytest.approx(0.9 * 0.01 + 0.1 * 5.0)


def test_parts_without_a_task_are_weighted_by_the_others() -> None:
    tokens = {"prose": 60, "code": 30, "answers": 10}
    strata = Strata.from_lengths(pieces(dict.fromkeys(tokens, 16), tokens))
    part = arrange(task_losses({"prose": [0.1, 0.3] * 8, "answers": [5.0] * 16}, tokens))
    found = stratified_effects(part, "b", ["p"], strata, 0.95)[0]
    assert found.value == pytest.approx((0.6 * 0.2 + 0.1 * 5.0) / 0.7)
    assert found.error == pytest.approx(0.6 / 0.7 * stats.sem([0.1, 0.3] * 8))


def test_tasks_with_few_documents_share_a_stratum() -> None:
    tokens = {"a": 1, "b": 1, "c": 1}
    assert set(Strata.from_lengths(pieces({"a": 16, "b": 9, "c": 9}, tokens)).weight) == {"a", "the rest"}
    # Three remaining documents have no interval, so everything is one stratum.
    assert set(Strata.from_lengths(pieces({"a": 40, "b": 3}, tokens)).weight) == {"the rest"}


# Two tasks of identical documents in a fixed mix leave nothing to chance.
ALIKE = task_losses({"prose": [0.1] * 16, "answers": [2.0] * 16}, {"prose": 90, "answers": 10})
ALIKE_VALUE = 0.9 * 0.1 + 0.1 * 2.0


RENAMED = [replace(row, plan={"b": "0-3", "p": "0-2"}[row.plan]) for row in ALIKE]
WHOLE_PLAN, PLAN = Plan.parse("0-3"), Plan.parse("0-2")


def contrasted() -> list[Score]:
    part = pair_effects(ALIKE, "b", ["p"])
    assert part is not None
    return [Resampled.from_parts([part], seed=0, resamples=200).row("claim", "mean", take_first)]


ESTIMATED: dict[str, tuple[Callable[[], list[Score]], dict[str, str]]] = {
    "a sweep": (lambda: compute_effects(ALIKE, "b"), {"task": "all", "metric": "delta_nll"}),
    "conditions": (
        lambda: compare_conditions("m", ALIKE, "b", [ConditionLosses("p", "d")], seed=0, by_task=False)[:1],
        {"metric": "d"},
    ),
    "a contrast": (contrasted, {"metric": "mean"}),
    "another text": (lambda: compute_loss_changes(RENAMED, WHOLE_PLAN, "report", seed=0), {"metric": AGAIN}),
    "the gap between texts": (
        lambda: compute_selection_gap(
            [replace(row, nll=2.0 * row.tokens) for row in RENAMED], RENAMED, WHOLE_PLAN, PLAN
        ),
        {"metric": GAP},
    ),
    "above the chosen": (
        lambda: compare_controls(RENAMED, WHOLE_PLAN, {"variant": PLAN}, (), "report", seed=0),
        {"metric": ABOVE_CHOSEN},
    ),
}


@pytest.mark.parametrize("name", ESTIMATED)
def test_several_tasks_are_a_fixed_mix(name: str) -> None:
    """Sampling documents from all tasks together would add the variance of the mix."""
    made, columns = ESTIMATED[name]
    (row,) = Rows(made()).where(**columns)
    assert (row.value, row.low, row.high) == pytest.approx((ALIKE_VALUE,) * 3, abs=1e-9)
    assert row.mde == pytest.approx(0.0, abs=1e-9) or row.mde is None


def test_contrast_skewness_uses_the_strata_that_vary() -> None:
    """A bootstrap of 5 and 17 units sees variances of 4 / 5 and 48 / 17: Satterthwaite's formula by hand."""
    changes = [np.repeat([-1.0, 1.0], 500)[:, None] * np.sqrt(variance) for variance in (4 / 5, 48 / 17)]
    effects = np.concatenate(np.broadcast_arrays(changes[0], changes[1][::-1]), axis=1).sum(axis=1, keepdims=True)
    strata = [(units, slice(0, 1), own) for units, own in zip((5, 17), changes, strict=True)]
    for level, statistic in ((0.0, take_first), (3.0, lambda each: each[..., 0] ** 2)):
        drawn = Resampled(np.full(1, level), effects + level, 5, 22, 22, strata).estimate(statistic)
        assert drawn.freedom == pytest.approx((1 + 3) ** 2 / (1 / 4 + 9 / 16))
        spread = statistic(effects + level).std(ddof=1)
        assert drawn.error == pytest.approx(spread * np.sqrt((1 + 3) / (4 / 5 + 48 / 17)))


def test_small_constant_stratum_does_not_widen_a_contrast() -> None:
    draw = np.random.default_rng(0)
    nats = np.concatenate([np.full(16, 3.0), draw.normal(0, 1, 200)])[None]
    part = Part(nats, np.ones(216), 216, 216, np.repeat([0, 1], [16, 200]))
    resampled = Resampled.from_parts([part], seed=0, resamples=20_000)
    (one, other), (expected,) = resampled.strata, student_interval(nats, np.ones(216), strata=part.strata).each()
    assert resampled.effects == pytest.approx(resampled.value + one[2] + other[2]), "what resamples change, and no more"
    own = resampled.estimate(take_first)
    assert own.freedom == pytest.approx(199) == expected.freedom
    assert own.high - own.low == pytest.approx(expected.high - expected.low, rel=0.03)


UNLIKE = np.repeat([0, 1], [16, 32])


def test_error_of_a_mix_matches_its_formula() -> None:
    draw = np.random.default_rng(3)
    tokens, nats = draw.integers(5, 50, 48).astype(float), draw.normal(0, 1, (1, 48)) + UNLIKE
    rows = [
        Loss(plan, "ab"[task], str(at), 0, 0.0 if plan == "b" else float(nats[0, at]), int(tokens[at]), 0)
        for at, task in enumerate(UNLIKE)
        for plan in "bp"
    ]
    grid = arrange(rows)
    expected = stratified_effects(grid, "b", ["p"], Strata.from_lengths(unit_pieces(grid)), 0.95)[0]
    found = skewed_interval(nats, tokens, strata=UNLIKE)
    for name, value in (("value", found.value), ("freedom", found.freedom), ("error", found.error)):
        assert value[0] == pytest.approx(getattr(expected, name), rel=1e-12)
    assert found.freedom[0] == pytest.approx(expected.freedom)
    assert (Strata.label_grid(grid) == UNLIKE).all()


def test_sign_flips_use_the_error_of_the_mix() -> None:
    values, strata = np.array([5.0, 5.5, 4.0, -3.0, -3.5, -2.5]), np.array([0, 0, 0, 1, 1, 1])

    def t(flipped: Numbers) -> float:
        error = np.sqrt(sum(3 * flipped[strata == each].var(ddof=1) for each in (0, 1)))
        return float(abs(flipped.sum()) / error)

    every = [t(values * signs) for signs in itertools.product((1, -1), repeat=6)]
    share = np.mean([each >= t(values) - 1e-9 for each in every])
    found = sign_flips(values, seed=0, flips=40_000, strata=strata)
    assert found.p[0] == pytest.approx(share, abs=0.01)
    assert found.critical == pytest.approx(np.quantile(every, 0.95), rel=0.05)
    assert share < 0.2 < sign_flips(values, seed=0, flips=1000).p[0]


@pytest.mark.nightly
def test_coverage_and_level_of_heterogeneous_tasks() -> None:
    """The mix has no effect, but its tasks have large opposite ones: 2,000 studies of 48 documents."""
    draw, studies = np.random.default_rng(0), 2000
    tokens = np.full(48, 10.0)
    means = np.array([2.0, -1.0])[UNLIKE]
    nats = (means + draw.normal(0, np.array([0.5, 1.0])[UNLIKE], (studies, 48))) * 10
    estimate = paired_bootstrap(nats, tokens, seed=0, resamples=2000, strata=UNLIKE)
    assert np.mean((estimate.low <= 0) & (estimate.high >= 0)) == pytest.approx(0.95, abs=0.015)
    assert np.mean(sign_flips(nats, seed=0, flips=2000, strata=UNLIKE).p <= 0.05) == pytest.approx(0.05, abs=0.015)
    together = paired_bootstrap(nats, tokens, seed=0, resamples=2000)
    assert np.mean((together.low <= 0) & (together.high >= 0)) == 1.0, "the deliberate wrong answer: documents pooled"


@pytest.mark.parametrize("documents", [40, 6])
def test_window_sums_have_tasks_as_strata(documents: int) -> None:
    """Tasks whose means are far apart must not widen the interval of their fixed mix; document 0 has no tokens."""
    draw = np.random.default_rng(3)
    windows = [
        Window(str(number), "ab"[number % 2], index, (0,) * 9, 1, 9)
        for number in range(documents)
        for index in range(8)
    ]
    values = draw.normal(size=len(windows)) + np.array([20.0 * (window.task == "b") for window in windows])
    tokens = np.array([0.0 if window.document == "0" else 8.0 for window in windows])
    values *= tokens > 0
    sums = WindowSums()
    for start in range(0, len(windows), 7):
        part = slice(start, start + 7)
        sums.add(torch.tensor(values[None, part]), torch.tensor(tokens[part]), windows[part])
    (row,) = sums.scores("m", "x", [{"layer": 0}])
    if documents >= 8:
        values, tokens = (each.reshape(documents, 8).sum(axis=1) for each in (values, tokens))
        windows = windows[::8]
    kept = tokens > 0
    labels = np.array([window.task == "b" for window in windows])[kept].astype(np.intp)
    expected = student_interval(values[None, kept], tokens[kept], strata=labels)
    assert (row.value, row.low, row.high) == pytest.approx(expected.row())
    assert row.high - row.low < 0.5
