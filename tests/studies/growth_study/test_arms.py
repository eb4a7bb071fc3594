"""A growth study: its arms and its runs."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.command import Ended, layerwise, refused
from layerwise.errors import PlanError, TrainError
from layerwise.plan.schedule import GrowthSchedule, ModelCost, preset, steps_for
from layerwise.plan.schedule.allocation import Importance, allocation
from layerwise.results import Run
from layerwise.results.training_record import FILE
from layerwise.runner.reporter import Silent
from layerwise.runner.trainings import beyond
from layerwise.runner.verbs import train_growth_study
from layerwise.studies.train_growth import study_steps as study_run
from layerwise.studies.train_growth.options import UNIFORM
from layerwise.studies.train_growth.schedule_file import read_schedule
from layerwise.studies.train_growth.study_arms import (
    ARMS,
    CONTROLS,
    IMPORTANCE,
    PERMUTED,
    PUBLISHED,
    RANDOM,
    REVERSED,
    STACKING,
    TOLERANCE,
    exchanged,
    known,
    lengths,
    most_steps,
    of_importance,
    ordered_arms,
    permutation,
    rate_of,
)
from layerwise.studies.train_growth.task import check_epochs, check_initial_weights, cost_in_uniform_steps, steps_within
from studies.growth.tiny_inputs import SHORT, record
from tier import by_tier

DEPTH = 12
COST = ModelCost((1.0,) * DEPTH, embedding=0.0, head=2.0)
EFFECTS = (0.9, 0.02, 0.3, 0.3, 0.0, 0.1, 0.0, 0.05, 0.2, 0.0, 0.4, 0.6)


def by_importance(effects: tuple[float, ...] = EFFECTS) -> GrowthSchedule:
    return allocation([Importance(effect, effect - 0.001, effect + 0.001) for effect in effects]).schedule()


def test_the_arms_are_these_and_each_schedule_is_called_as_its_arm() -> None:
    schedules = {**known(DEPTH), **of_importance(by_importance(), seed=0)}
    assert set(schedules) == set(ARMS)
    assert all(schedule.name == arm and schedule.depth == DEPTH for arm, schedule in schedules.items())


@given(seed=st.integers(0, 1000))
def test_controls_have_the_phases_of_what_they_control_with_the_roles_exchanged(seed: int) -> None:
    found = of_importance(by_importance(), seed)
    own = found[IMPORTANCE].phases
    for control in CONTROLS:
        phases = found[control].phases
        assert [(phase.name, phase.share, len(phase.trains)) for phase in phases] == [
            (phase.name, phase.share, len(phase.trains)) for phase in own
        ]
        assert phases != own
    last = DEPTH - 1
    assert [phase.trains for phase in found[REVERSED].phases] == [
        tuple(sorted(last - layer for layer in phase.trains)) for phase in own
    ]
    # A permutation moves roles, so a layer that never learned plays another; random freezing draws every phase.
    assert sorted(_parts(found[PERMUTED])) == sorted(_parts(found[IMPORTANCE]))
    assert 0 < exchanged(found[IMPORTANCE], found[PERMUTED]) <= DEPTH


def _parts(schedule: GrowthSchedule) -> list[int]:
    return [sum(layer in phase.trains for phase in schedule.phases) for layer in range(schedule.depth)]


def test_the_seed_decides_the_controls() -> None:
    one, again, other = (of_importance(by_importance(), seed) for seed in (0, 0, 1))
    assert one == again
    assert one[PERMUTED] != other[PERMUTED]
    assert one[RANDOM] != other[RANDOM]


@pytest.mark.parametrize("effects", [(0.5,) * 4, (0.5,)])
def test_where_every_layer_has_the_same_role_there_is_no_control(effects: tuple[float, ...]) -> None:
    schedule = by_importance(effects)
    assert permutation(schedule, seed=0) is None
    assert set(of_importance(schedule, seed=0)) == {IMPORTANCE}


@given(first=st.integers(0, 2), depth=st.integers(2, 5), seed=st.integers(0, 50))
def test_one_layer_that_differs_is_enough_for_a_control(first: int, depth: int, seed: int) -> None:
    effects = tuple(0.5 if layer == first % depth else 0.0 for layer in range(depth))
    schedule = by_importance(effects)
    order = permutation(schedule, seed)
    assert order is not None
    assert exchanged(schedule, schedule.permuted(order)) == 2


@given(seed=st.integers(0, 100), learn=st.sets(st.integers(0, DEPTH - 1), min_size=1, max_size=DEPTH // 2))
def test_no_layer_that_learns_keeps_its_role_where_as_many_others_can_take_it(seed: int, learn: set[int]) -> None:
    schedule = by_importance(tuple(0.5 if layer in learn else 0.0 for layer in range(DEPTH)))
    found = of_importance(schedule, seed)
    assert exchanged(found[IMPORTANCE], found[PERMUTED]) >= 2 * min(len(learn), 3)
    if len(learn) < 3:
        assert learn.isdisjoint(found[PERMUTED].phases[0].trains)


@given(seed=st.integers(0, 200))
def test_few_layers_are_not_drawn_as_they_were(seed: int) -> None:
    found = of_importance(by_importance((0.0, 0.4)), seed)
    assert found[RANDOM].phases != found[IMPORTANCE].phases


@pytest.mark.slow
@settings(max_examples=by_tier(fast=5, nightly=20), deadline=None)
@given(seed=st.integers(0, 1000), budget=st.integers(100, 400), passes=st.integers(1, 2))
def test_a_ramp_keeps_its_budget_with_its_very_draws(seed: int, budget: int, passes: int) -> None:
    schedule = preset("ramp", DEPTH)
    steps = steps_within(schedule, COST, budget, seed, passes)
    assert abs(cost_in_uniform_steps(schedule, COST, steps, seed, passes) / budget - 1) < TOLERANCE


@pytest.mark.slow
@settings(max_examples=by_tier(fast=7, nightly=30), deadline=None)
@given(arm=st.sampled_from([PUBLISHED, IMPORTANCE, STACKING, RANDOM]), budget=st.integers(110, 2000))
def test_what_leaves_nothing_to_chance_keeps_it_too(arm: str, budget: int) -> None:
    schedule = {**known(DEPTH), **of_importance(by_importance(), 0)}[arm]
    steps = steps_within(schedule, COST, budget, seed=3)
    assert steps == steps_for(schedule, COST, budget)
    assert abs(cost_in_uniform_steps(schedule, COST, steps, seed=3) / budget - 1) < TOLERANCE


@settings(max_examples=by_tier(fast=12, nightly=50), deadline=None)
@given(
    effects=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4).filter(lambda each: max(each) > 0.02),
    head=st.floats(0.0, 9.0),
    budget=st.integers(20, 300),
)
def test_no_schedule_by_importance_takes_more_steps_than_were_reckoned_with(
    effects: list[float], head: float, budget: int
) -> None:
    cost = ModelCost((1.0,) * 4, embedding=0.0, head=head)
    assert steps_for(by_importance(tuple(effects)), cost, budget) <= most_steps(cost, budget)


@given(steps=st.lists(st.integers(100, 400), min_size=1, max_size=5))
def test_lengths_reach_from_below_the_budget_to_the_longest_arm(steps: list[int]) -> None:
    found = lengths(steps, budget=100)
    assert found[0] < 1
    assert 100 * found[-1] >= max(steps) - 1e-6
    assert 100 * found[-1] <= max(max(steps) + 5, 105) + 1e-6, "and no further than a grain"
    whole = sorted({*found, 1.0})
    assert all(later / earlier <= 2.01 for earlier, later in pairwise(whole))
    assert 1.0 not in found


def test_phased_arms_take_the_phased_rate_and_lengths_of_uniform_take_uniforms() -> None:
    chosen = {UNIFORM: 1.0, PUBLISHED: 2.0, IMPORTANCE: 3.0}
    rates = {arm: rate_of(arm, chosen) for arm in (*ARMS, "uniform@1.25")}
    assert (rates[UNIFORM], rates["uniform@1.25"], rates[PUBLISHED]) == (1.0, 1.0, 2.0)
    assert {rates[arm] for arm in ARMS if arm not in (UNIFORM, PUBLISHED)} == {3.0}
    del chosen[IMPORTANCE]
    assert rate_of(STACKING, chosen) == 2.0
    assert rate_of("ramp", {UNIFORM: 1.0, STACKING: 4.0}) == 4.0


@pytest.mark.parametrize(
    ("losses", "further"),
    [
        ({1e-3: 5.0, 2e-3: 4.0, 4e-3: 4.5}, None),
        ({1e-3: 5.0, 2e-3: 4.0, 4e-3: 3.0}, 8e-3),
        ({1e-3: 3.0, 2e-3: 4.0, 4e-3: 5.0}, 5e-4),
        ({6e-3: 5.0, 1.2e-2: 4.0}, 2.4e-2),  # the number that a user would write, not one that rounding left
        ({1e-3: 4.0, 2e-3: 4.0, 4e-3: 4.0}, 5e-4),  # of equal ones the lowest is chosen, so it is the end
        ({1e-3: 5.0}, None),
    ],
)
def test_a_sweep_goes_on_while_its_best_is_at_an_end(losses: dict[float, float], further: float | None) -> None:
    assert beyond(losses) == further


def test_a_text_that_would_be_read_too_often_is_refused_with_figures() -> None:
    check_epochs(100, 8, windows=400, max_epochs=2.0, name="uniform")
    with pytest.raises(
        TrainError, match=r"uniform would read the text 2.02 times: 101 steps of 8 windows.*at most 100"
    ):
        check_epochs(101, 8, windows=400, max_epochs=2.0, name="uniform")
    with pytest.raises(TrainError, match=r"allow it with --max-epochs 2\.1"):
        check_epochs(101, 8, windows=400, max_epochs=2.0, name="uniform")
    check_epochs(101, 8, windows=400, max_epochs=2.1, name="uniform")


def test_arms_come_in_their_order_with_uniform_among_them() -> None:
    assert ordered_arms(["importance", "published", "permuted"]) == (UNIFORM, PUBLISHED, IMPORTANCE, PERMUTED)


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        (["publisht"], "did you mean published"),
        (["published", "permuted"], "permuted is made from the schedule of importance"),
        (["uniform"], "uniform alone is no study"),
        ([], "uniform alone is no study"),
    ],
)
def test_arms_that_make_no_study_are_refused(arms: list[str], said: str) -> None:
    with pytest.raises(TrainError, match=said):
        ordered_arms(arms)


def test_layers_do_not_grow_in_over_trained_ones() -> None:
    check_initial_weights(preset(STACKING, DEPTH), pretrained=False)
    check_initial_weights(preset(PUBLISHED, DEPTH), pretrained=True)
    with pytest.raises(PlanError, match=r"in stacking layers grow in \(phase shallow\).*--from-scratch"):
        check_initial_weights(preset(STACKING, DEPTH), pretrained=True)


@pytest.mark.slow
def test_python_returns_the_rows_of_two_arms_and_of_the_headline(config: Path, texts: Path, tmp_path: Path) -> None:
    result = train_growth_study(
        str(config),
        texts,
        arms=("published",),
        learning_rates=(1e-3,),
        warmups=(0.2,),
        seeds=2,
        steps=20,
        batch_size=4,
        max_length=16,
        evals=2,
        device="cpu",
        run=tmp_path / "run",
        reporter=Silent(),
    )
    rows = {(row.arm, row.amount, row.condition, row.metric) for row in result.rows if row.measure == "growth"}
    assert ("published", None, "flops", "difference") in rows
    for cost in ("flops", "seconds"):
        metrics = {metric for *about, metric in rows if about == ["published", None, cost]}
        assert len(metrics & {"saving", "saving_at_most", "saving_at_least"}) == 1, cost
    read_off = result.table("growth").query("metric == 'read_off'")
    assert set(read_off["value"]) == {2.0}, "its own length and the smaller budget"
    assert ("published", None, "tokens", "time_saved") in rows
    assert ("published", 0.634, "budget", "loss_ratio") in rows
    assert record(tmp_path / "run", "published@0.634").steps == 13
    rates = result.table("rates")
    assert set(rates["arm"]) == {"uniform", "published"}
    assert set(rates.query("condition == 'warmup' and metric == 'nll'")["amount"]) == {0.05, 0.2}
    assert {("uniform", None), ("published", None), ("published", 0.634)} <= {
        (row.arm, row.amount) for row in result.rows if row.measure == "epochs"
    }
    assert "Schedules compared" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set", "shorter=0.5", "--arms", "ramp"), "--set shorter does nothing here"),
        (("--steps", "5", "--epochs", "1"), "give one of them"),
        (("--epochs", "1.5"), "the longest training, would read the text"),
    ],
)
def test_a_study_that_cannot_be_is_refused_before_there_is_a_folder(
    config: Path, texts: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    run = tmp_path / "run"
    assert said in refused(
        "train", "growth-study", "--model", config, "--text", texts, "--max-length", "16", "--run", run, *options
    )
    assert not run.exists()


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = (0.0, 0.1, 0.4, 0.2)
    found = tuple(Importance(effect, effect - 0.001, effect + 0.001) for effect in effects)
    monkeypatch.setattr(study_run, "measured_importance", lambda *args, **options: found)


def study(model: Path, text: Path, run: Path, *options: object) -> Ended:
    given = ("--model", model, "--text", text, "--run", run, *SHORT[2:], *map(str, options))
    ended = layerwise("train", "growth-study", *given)
    assert ended.code == 0, ended.err
    return ended


def swept(seeds: int) -> tuple[object, ...]:
    rates = ("--learning-rates", "1e-3,4e-3", "--set", "warmups=0.05", "--set", f"sweep_seeds={seeds}")
    return (*rates, "--seeds", seeds)


@pytest.mark.nightly
def test_a_trained_model_is_taken_to_a_new_domain_without_stacking(
    checkpoint: Path, texts: Path, tmp_path: Path, planted: None
) -> None:
    folder = tmp_path / "study"
    arms = ("--arms", "importance,permuted,stacking")
    ended = study(checkpoint, texts, folder, *swept(1), "--steps", 16, *arms)
    assert "stacking is left out: its layers would grow in over weights that are trained already" in ended.err
    assert "from its own weights" in ended.err
    assert not (folder / "stacking").exists()
    assert read_schedule(folder / "importance.yaml").phases[-1].trains == (1, 2, 3)
    settings = [record(folder, arm).recipe["settings"] for arm in ("importance", "permuted")]
    assert settings[0]["learning_rate"] == settings[1]["learning_rate"]
    with Run.open(folder) as run:
        differences = run.store.scores("growth", metric="difference")
        assert any("not counted as a cost of the schedule" in note.text for note in run.store.notes("growth"))
    assert {("importance", "permuted", "flops"), ("permuted", "uniform", "flops")} <= {
        (row.arm, row.against, row.condition) for row in differences
    }


@pytest.mark.slow
def test_a_study_without_importance_goes_on_without_its_controls(config: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    arms = ("--arms", "importance,permuted,ramp")
    ended = study(config, texts, folder, "--steps", 8, "--learning-rates", "1e-6", "--seeds", 1, *arms)
    assert "importance and its controls are left out: no layer has an effect" in ended.err
    assert not (folder / "importance").exists()
    assert (folder / "ramp" / "seed-0" / "model" / FILE).is_file()


@pytest.mark.slow
def test_importance_is_measured_again_where_another_rate_is_the_best(
    config: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuple(Importance(effect, effect - 0.001, effect + 0.001) for effect in (0.0, 0.1, 0.4, 0.2))
    asked: list[object] = []
    monkeypatch.setattr(study_run, "measured_importance", lambda *args, **options: asked.append(args) or found)
    folder = tmp_path / "study"
    once = (config, texts, folder, "--steps", 16, "--seeds", 1, "--arms", "importance", "--learning-rates")
    for rate, times in (("1e-3", 1), ("1e-3", 1), ("4e-3", 2)):
        if times == 2:  # as a study that was stopped before its arms
            for path in filter(Path.is_dir, (*folder.glob("importance*"), *folder.glob("uniform*"))):
                shutil.rmtree(path)
        study(*once, rate)
        assert len(asked) == times
    with Run.open(folder) as run:
        assert [row.value for row in run.store.scores("importance", metric="learning_rate")] == [4e-3]
