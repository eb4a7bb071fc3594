"""Variants of a growth training: schedules, lengths, learning rates and rows."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.command import Ended, layerwise
from layerwise.errors import PlanError, TrainError
from layerwise.plan.schedule import GrowthSchedule, ModelCost, preset, steps_for
from layerwise.plan.schedule.allocation import Importance, allocation
from layerwise.results import Run
from layerwise.results.training_record import FILE
from layerwise.runner.reporter import Silent
from layerwise.runner.trainings import find_next_rate
from layerwise.studies.train_growth import steps as module
from layerwise.studies.train_growth.design import (
    check_epochs,
    check_initial_weights,
    convert_cost_to_uniform_steps,
    count_steps_within,
)
from layerwise.studies.train_growth.schedule_file import read_schedule
from layerwise.studies.train_growth.variants import (
    CONTROLS,
    IMPORTANCE,
    PERMUTED,
    PUBLISHED,
    RANDOM,
    REVERSED,
    UNIFORM,
    build_controls,
    choose_setting,
    compute_max_steps,
    count_exchanged,
    list_uniform_lengths,
)
from layerwise.studies.train_growth.verb import growth as train_growth
from studies.growth.tiny_inputs import SHORT, record
from tier import by_tier

DEPTH = 12
COST = ModelCost((1.0,) * DEPTH, embedding=0.0, head=2.0)
EFFECTS = (0.9, 0.02, 0.3, 0.3, 0.0, 0.1, 0.0, 0.05, 0.2, 0.0, 0.4, 0.6)
TOLERANCE = 0.01


def by_importance(effects: tuple[float, ...] = EFFECTS) -> GrowthSchedule:
    return allocation([Importance(effect, effect - 0.001, effect + 0.001) for effect in effects]).schedule()


@given(seed=st.integers(0, 1000))
def test_controls_have_the_same_phases_with_exchanged_roles(seed: int) -> None:
    found = build_controls(by_importance(), seed)
    own = found[IMPORTANCE].phases
    for control in CONTROLS:
        phases = found[control].phases
        assert found[control].name == control
        assert [(phase.name, phase.share, len(phase.trains)) for phase in phases] == [
            (phase.name, phase.share, len(phase.trains)) for phase in own
        ]
        assert phases != own
    last = DEPTH - 1
    assert [phase.trains for phase in found[REVERSED].phases] == [
        tuple(sorted(last - layer for layer in phase.trains)) for phase in own
    ]
    # A permutation exchanges roles; random freezing draws every phase.
    assert sorted(_count_phases(found[PERMUTED])) == sorted(_count_phases(found[IMPORTANCE]))
    assert 0 < count_exchanged(found[IMPORTANCE], found[PERMUTED]) <= DEPTH
    assert build_controls(by_importance(), seed) == found
    assert build_controls(by_importance(), seed + 1)[RANDOM] != found[RANDOM]


def _count_phases(schedule: GrowthSchedule) -> list[int]:
    return [sum(layer in phase.trains for phase in schedule.phases) for layer in range(schedule.depth)]


@given(seed=st.integers(0, 100), learn=st.sets(st.integers(0, DEPTH - 1), min_size=1, max_size=DEPTH // 2))
def test_controls_train_other_layers_where_possible(seed: int, learn: set[int]) -> None:
    found = build_controls(by_importance(tuple(0.5 if layer in learn else 0.0 for layer in range(DEPTH))), seed)
    assert count_exchanged(found[IMPORTANCE], found[PERMUTED]) >= 2 * min(len(learn), 3)
    if len(learn) < 3:
        assert learn.isdisjoint(found[PERMUTED].phases[0].trains)


@given(effects=st.sampled_from([(0.5,) * 4, (0.5,), (0.0, 0.4)]), seed=st.integers(0, 50))
def test_a_schedule_has_controls_if_its_layers_differ(effects: tuple[float, ...], seed: int) -> None:
    found = build_controls(by_importance(effects), seed)
    if len(set(effects)) == 1:
        assert set(found) == {IMPORTANCE}
    else:
        assert all(found[control].phases != found[IMPORTANCE].phases for control in CONTROLS)


@pytest.mark.slow
@settings(max_examples=by_tier(fast=5, nightly=20), deadline=None)
@given(
    name=st.sampled_from(["ramp", "published", "stacking", RANDOM]),
    seed=st.integers(0, 1000),
    budget=st.integers(110, 400),
    passes=st.integers(1, 2),
)
def test_random_variants_keep_the_budget(name: str, seed: int, budget: int, passes: int) -> None:
    schedule = build_controls(by_importance(), 0)[RANDOM] if name == RANDOM else preset(name, DEPTH)
    steps = count_steps_within(schedule, COST, budget, seed, passes)
    assert abs(convert_cost_to_uniform_steps(schedule, COST, steps, seed, passes) / budget - 1) < TOLERANCE


@settings(max_examples=by_tier(fast=12, nightly=50), deadline=None)
@given(
    effects=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4).filter(lambda each: max(each) > 0.02),
    head=st.floats(0.0, 9.0),
    budget=st.integers(20, 300),
)
def test_schedules_by_importance_have_a_maximum_number_of_steps(effects: list[float], head: float, budget: int) -> None:
    cost = ModelCost((1.0,) * 4, embedding=0.0, head=head)
    assert steps_for(by_importance(tuple(effects)), cost, budget) <= compute_max_steps(cost, budget)


@given(steps=st.lists(st.integers(100, 400), min_size=1, max_size=5))
def test_lengths_range_from_below_the_budget_to_the_longest_variant(steps: list[int]) -> None:
    found = list_uniform_lengths(steps, budget=100)
    assert found[0] < 1
    assert 100 * found[-1] >= max(steps) - 1e-6
    assert 100 * found[-1] <= max(max(steps) + 5, 105) + 1e-6, "and no further than a grain"
    assert all(later / earlier <= 2.01 for earlier, later in pairwise(sorted({*found, 1.0})))
    assert 1.0 not in found


def test_similar_variants_share_a_learning_rate() -> None:
    chosen = {UNIFORM: 1.0, PUBLISHED: 2.0, IMPORTANCE: 3.0}
    rates = {name: choose_setting(name, chosen, 9.0) for name in (*chosen, "uniform@1.25", PERMUTED, "stacking")}
    assert rates == {**chosen, "uniform@1.25": 1.0, PERMUTED: 3.0, "stacking": 3.0}
    del chosen[IMPORTANCE]
    assert choose_setting("stacking", chosen, 9.0) == 2.0
    assert choose_setting("ramp", {UNIFORM: 1.0, "stacking": 4.0}, 9.0) == 4.0
    assert choose_setting("ramp", {}, 9.0) == 9.0


@pytest.mark.parametrize(
    ("losses", "further"),
    [
        ({1e-3: 5.0, 2e-3: 4.0, 4e-3: 4.5}, None),
        ({1e-3: 5.0, 2e-3: 4.0, 4e-3: 3.0}, 8e-3),
        ({1e-3: 3.0, 2e-3: 4.0, 4e-3: 5.0}, 5e-4),
        ({6e-3: 5.0, 1.2e-2: 4.0}, 2.4e-2),  # a round number
        ({1e-3: 4.0, 2e-3: 4.0, 4e-3: 4.0}, 5e-4),  # the lowest of equal ones, which is at an end
        ({1e-3: 5.0}, None),
    ],
)
def test_tuning_continues_while_the_best_rate_is_at_an_end(losses: dict[float, float], further: float | None) -> None:
    assert find_next_rate(losses) == further


def test_a_text_that_is_too_short_for_the_budget_is_rejected() -> None:
    check_epochs(100, 8, windows=400, max_epochs=2.0, name="uniform")
    message = r"uniform must train for at most 2 epochs, got 2.02 .101 steps.*at most 100.*--max-epochs 2\.1"
    with pytest.raises(TrainError, match=message):
        check_epochs(101, 8, windows=400, max_epochs=2.0, name="uniform")
    check_epochs(101, 8, windows=400, max_epochs=2.1, name="uniform")


def test_growth_replaces_trained_layers_with_a_note() -> None:
    check_initial_weights(preset("stacking", DEPTH), pretrained=False)
    check_initial_weights(preset(PUBLISHED, DEPTH), pretrained=True)
    with pytest.raises(PlanError, match=r"stacking adds layers in phase shallow.*--from-scratch"):
        check_initial_weights(preset("stacking", DEPTH), pretrained=True)


@pytest.mark.slow
def test_the_frontier_has_all_comparisons(config: Path, texts: Path, tmp_path: Path) -> None:
    result = train_growth(
        str(config),
        texts,
        schedules=("published",),
        learning_rates=(1e-3,),
        warmups=(0.2,),
        frontier=True,
        shorter=416 / 656,
        seeds=2,
        steps=20,
        batch_size=4,
        max_length=16,
        evals=2,
        device="cpu",
        run=tmp_path / "run",
        reporter=Silent(),
    )
    rows = {(row.variant, row.share, row.unit, row.metric) for row in result.rows if row.measure == "growth"}
    assert ("published", None, "flops", "difference") in rows
    for cost in ("flops", "seconds"):
        metrics = {metric for *about, metric in rows if about == ["published", None, cost]}
        assert len(metrics & {"saving", "saving_at_most", "saving_at_least"}) == 1, cost
    assert ("published", None, "tokens", "time_saved") in rows
    assert ("published", 0.634, "budget", "loss_ratio") in rows
    assert record(tmp_path / "run", "published@0.634").steps == 13
    rates = result.table("rates")
    assert set(rates["variant"]) == {"uniform", "published"}
    assert set(rates.query("metric == 'nll'")["warmup"].dropna()) == {0.05, 0.2}
    assert "Schedules compared" in (tmp_path / "run" / "report.html").read_text()


def grow(model: Path, text: Path, run: Path, *options: object) -> Ended:
    given = ("--model", model, "--text", text, "--run", run, *SHORT[2:], *map(str, options))
    ended = layerwise("train", "growth", *given)
    assert ended.code == 0, ended.err
    return ended


@pytest.mark.nightly
def test_a_trained_model_is_compared_with_its_controls(
    checkpoint: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuple(Importance(effect, effect - 0.001, effect + 0.001) for effect in (0.0, 0.1, 0.4, 0.2))
    monkeypatch.setattr(module, "estimate_importance", lambda *args, **options: found)
    folder = tmp_path / "run"
    options = ("--schedules", "importance,permuted", "--learning-rates", "1e-3,4e-3", "--frontier", "--steps", 16)
    ended = grow(checkpoint, texts, folder, *options)
    assert "from the weights of the checkpoint" in ended.err
    assert read_schedule(folder / "importance.yaml").phases[-1].trains == (1, 2, 3)
    rates = {record(folder, variant).recipe["settings"]["learning_rate"] for variant in ("importance", "permuted")}
    assert len(rates) == 1
    with Run.open(folder) as run:
        differences = run.store.scores("growth", metric="difference")
        assert any("this cost is not counted" in note.text for note in run.store.notes("growth"))
    assert {("importance", "permuted", "flops"), ("permuted", "uniform", "flops")} <= {
        (row.variant, row.against, row.unit) for row in differences
    }


@pytest.mark.slow
def test_without_important_layers_the_other_variants_are_trained(config: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ("--schedules", "importance,permuted,ramp", "--steps", 8, "--learning-rates", "1e-6")
    ended = grow(config, texts, folder, *options)
    assert "importance and its controls are skipped: no layer has a detectable effect" in ended.err
    assert not (folder / "importance").exists()
    assert (folder / "ramp" / "seed-0" / "model" / FILE).is_file()


@pytest.mark.slow
def test_importance_is_measured_again_at_another_best_rate(
    config: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuple(Importance(effect, effect - 0.001, effect + 0.001) for effect in (0.0, 0.1, 0.4, 0.2))
    asked: list[object] = []
    monkeypatch.setattr(module, "estimate_importance", lambda *args, **options: asked.append(args) or found)
    folder = tmp_path / "run"
    for rate, times in (("1e-3", 1), ("1e-3", 1), ("4e-3", 2)):
        if times == 2:  # like a run interrupted before its variants
            for path in filter(Path.is_dir, (*folder.glob("importance*"), *folder.glob("uniform*"))):
                shutil.rmtree(path)
        grow(config, texts, folder, "--steps", 16, "--schedules", "importance", "--learning-rates", rate)
        assert len(asked) == times
    with Run.open(folder) as run:
        assert [row.value for row in run.store.scores("importance", metric="learning_rate")] == [4e-3]
