"""How much text is read: never more than the minutes allow, nearly as much, and the same again by the same command.

The clock is planted: what is measured takes what a line says, and nothing waits for it.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import layerwise
from cli.conftest import own_model, texts
from layerwise.data.batches import Batch
from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.data.text.tokens import Window
from layerwise.errors import OptionError
from layerwise.experiments import text_length as module
from layerwise.experiments.engines.steps import Work, WorkCost
from layerwise.experiments.files import read_experiment
from layerwise.experiments.opening import cutting
from layerwise.experiments.reporter import Silent
from layerwise.experiments.runner import perform
from layerwise.experiments.sweep.config import Sweep
from layerwise.experiments.text_length import (
    GROWTH,
    MINUTES,
    ReadingPace,
    TimedText,
    chosen_text,
    resolution,
    tokens_that_fit,
)
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData, pieces, portion
from layerwise.measure.stats.effects import effects
from layerwise.measure.stats.strata import shuffled
from layerwise.plan import Plan
from layerwise.plan.families import leave_one_out
from layerwise.results import Manifest
from layerwise.results.rows import Loss
from layerwise.results.run import MANIFEST
from layerwise.stack import Stack

__all__ = ["own_model", "texts"]

seconds = st.floats(0.0, 1e5)
each = st.floats(1e-6, 1e3)
tokens = st.integers(1, 10**9)


@given(seconds, each, seconds, tokens)
def test_the_tokens_within_a_time_are_the_most_that_fit(fixed: float, a_token: float, time: float, most: int) -> None:
    within = ReadingPace(fixed, a_token).tokens_within(time, most)
    taken = fixed + within * a_token
    assert within <= most
    assert within == 0 or taken <= time * (1 + 1e-9)
    assert within == most or taken + a_token > time * (1 - 1e-9)


@given(seconds, each, tokens, tokens)
def test_two_points_give_their_line(fixed: float, a_token: float, first: int, second: int) -> None:
    points = [(count, fixed + count * a_token) for count in (first, second)]
    pace = ReadingPace.through(points)
    count, taken = points[-1]
    assert pace.fixed + count * pace.each == pytest.approx(taken)
    if abs(second - first) * a_token > 1e-3 * taken:
        assert pace.fixed == pytest.approx(fixed, rel=1e-6, abs=1e-6 * taken)


@given(st.lists(st.tuples(tokens, seconds), min_size=1, max_size=3))
def test_noise_gives_no_pace_below_zero(points: list[tuple[int, float]]) -> None:
    pace = ReadingPace.through(points)
    assert 0 <= pace.fixed <= points[-1][1]
    assert pace.each >= 0


@given(seconds, each, st.floats(1.0, 1e5), st.integers(1, 500), st.integers(500, 10**8), st.floats(0.0, 0.02))
def test_what_is_chosen_fits_and_leaves_little(
    fixed: float, a_token: float, budget: float, least: int, most: int, of_measuring: float
) -> None:
    """Measuring takes time itself, a share of the budget at each of at most five looks."""
    used = 0.0

    def measure(count: int) -> tuple[int, float]:
        nonlocal used
        assert least <= count <= most
        used += of_measuring * budget
        return count, fixed + count * a_token

    chosen, _ = tokens_that_fit(measure, lambda: budget - used, least, most)
    left = budget - used
    can = ReadingPace(fixed, a_token).tokens_within(budget * (1 - 6 * of_measuring), most)
    assert chosen == 0 or least <= chosen <= most
    # The first look alone knows of nothing that is fixed: it takes the whole for the price of its tokens.
    assert chosen == 0 or fixed + chosen * a_token <= left * 1.0001 + 0.25 * fixed
    if can >= least:
        assert chosen >= min(least, most)
    if chosen < most and can >= 2 * least and chosen:
        assert chosen >= min(0.7 * can, most, least * GROWTH**4) - 1


def test_a_text_that_ends_is_not_read_twice() -> None:
    chosen, _ = tokens_that_fit(lambda count: (min(count, 700), 1.0 + min(count, 700) * 1e-3), lambda: 1e3, 100, 10_000)
    assert chosen >= 700


# ---- a text, a model and a planted clock


@pytest.fixture
def stack(own_model: Path) -> Stack:
    return layerwise.load(own_model)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = 1_000.0

    def passes(taken: float) -> None:
        nonlocal now
        now += taken

    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    return passes


BEGAN = 1_000.0
CORPUS = Corpus.of([f"once there was text number {n} and it went on for a while " * 3 for n in range(60)])


def timed(stack: Stack, a_token: float, fixed: float = 0.0, passes: Callable[[float], None] | None = None) -> TimedText:
    def works(data: EvalData) -> Sequence[Work]:
        if passes is not None:
            passes(1.0)
        return [Work("planted", lambda limit: WorkCost(fixed + a_token * data.tokens))]

    plans = [Plan.identity(stack.depth), *(member.plan for member in leave_one_out(stack.depth))]
    cut = cutting(Sweep(model="demo"), stack, CORPUS, 0)
    return TimedText(stack, cut, works, lambda data, allowed: False, plans, stack.depth)


def choose(stack: Stack, of: TimedText, **options: Any) -> module.ChosenText:
    return chosen_text(Sweep(model="demo", text=Path("book.txt"), **options), of, CORPUS, Silent(), BEGAN)


def test_the_text_of_a_demo_is_read_whole_whatever_the_clock_says(stack: Stack) -> None:
    own = chosen_text(Sweep(model="demo"), timed(stack, 1e9), CORPUS, Silent(), BEGAN)
    assert own.options == {}
    assert own.data.digest == choose(stack, timed(stack, 1.0), tokens="all").data.digest


@pytest.mark.parametrize("fixed", [0.0, 40.0])
def test_minutes_choose_tokens_at_the_pace(stack: Stack, clock: Callable[[float], None], fixed: float) -> None:
    """Loading took 20 seconds, and every look one."""
    clock(20.0)
    own = choose(stack, timed(stack, 0.1, fixed, clock), minutes=2.0)
    taken = 20 + 5 + fixed + 0.1 * own.data.tokens
    assert 0.7 * 120 <= taken <= 120
    assert own.data.tokens <= own.options["tokens"]
    assert own.options["minutes"] == 2.0
    again = cutting(Sweep(model="demo"), stack, CORPUS, 0)(*own.amount(Sweep(model="demo", minutes=2.0)))
    assert again.digest == own.data.digest
    assert f"--tokens {own.options['tokens']}" in own.says[0]


def test_a_text_that_fits_is_read_whole(stack: Stack, clock: Callable[[float], None]) -> None:
    own = choose(stack, timed(stack, 1e-6), minutes=1.0)
    assert own.data.digest == choose(stack, timed(stack, 1e9), tokens="all").data.digest
    assert own.options["tokens"] == "all"


def test_minutes_in_which_nothing_can_be_concluded_are_refused(stack: Stack, clock: Callable[[float], None]) -> None:
    with pytest.raises(OptionError, match=r"^--minutes 1 is too little: 8 documents .* about \d+; give --minutes \d+"):
        choose(stack, timed(stack, 1.0), minutes=1.0)


@pytest.mark.parametrize(("compared", "units"), [(1, 8), (6, 8), (7, 9), (30, 11), (262, 14)])
def test_as_many_windows_are_read_as_can_show_one_effect_among_all(
    stack: Stack, clock: Callable[[float], None], compared: int, units: int
) -> None:
    """With n windows no p of a sign flip is below 2^(1 - n), and Holm's correction multiplies the least."""
    of = replace(timed(stack, 1e3), compared=compared)
    assert of.least_units == units
    least = compared * 2.0 ** (1 - units)
    assert least <= 0.05
    assert units == 8 or 2 * least > 0.05
    assert choose(stack, of).data.units >= units


def test_what_is_compared_on_a_share_of_the_text_needs_its_windows_there(stack: Stack) -> None:
    assert replace(timed(stack, 1.0), compared=30, share=0.5).least_units == 21


def test_without_minutes_the_least_is_read_however_long_it_takes(stack: Stack, clock: Callable[[float], None]) -> None:
    own = choose(stack, timed(stack, 1e3))
    assert own.data.units >= 8
    assert own.data.tokens < 400
    assert own.options["minutes"] == MINUTES


def test_a_short_text_is_read_whole_without_a_clock(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "seconds_of", None)
    short = replace(timed(stack, 1.0), is_short=lambda data, allowed: allowed == 450.0)
    assert choose(stack, short).options == {}


@given(st.integers(10, 10**6))
def test_tokens_that_are_given_are_not_measured(count: int) -> None:
    asked: list[tuple[int | None, int | None]] = []
    of = TimedText(None, lambda *cut: asked.append(cut), None, None, (), 1)  # type: ignore[arg-type, func-returns-value]
    chosen_text(Sweep(model="demo", tokens=count), of, CORPUS, Silent(), 0.0)
    assert asked == [(count, None)]


@pytest.mark.slow
def test_the_printed_resolution_is_what_a_sweep_then_has(stack: Stack, clock: Callable[[float], None]) -> None:
    of = timed(stack, 0.0)
    data = of.cut(None, None)
    rows = effects(sweep(stack, of.plans, data), str(of.plans[0]), by_task=False)
    measured = sorted(row.mde for row in rows if row.metric == "delta_nll" and row.mde is not None)
    seen = resolution(of, data, 1e9)
    assert seen is not None
    assert measured[0] * 0.8 <= seen <= measured[-1] * 1.2


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_pilot_of_a_tenth_says_the_resolution_of_a_text_of_several_tasks(
    share: float, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses are planted: tasks differ in what a plan costs far more than their documents do, which a mean over tasks
    does not feel. The share of the text that is measured may have too few documents of a task for that."""
    windows = tuple(Window(f"d{number}", f"task-{number % 5}", 0, (1,) * 9, 1, 9) for number in range(160))
    ids = torch.ones(160, 9, dtype=torch.int64)
    data = EvalData("planted", "0", 160, "next_token", (Batch(ids, ids, ids, windows),))
    plans = [Plan.identity(12), *(member.plan for member in leave_one_out(12))]

    def losses(stack: Stack, chosen: Sequence[Plan], part: EvalData, *_: Any) -> list[Loss]:
        clock(1e-3 * len(chosen) * len(part.windows))
        return [
            Loss(str(plan), each.task, each.document, 0, 8 * planted(plans.index(plan), each), 8, 0)
            for plan in chosen
            for each in part.windows
        ]

    def planted(plan: int, window: Window) -> float:
        noise = random.Random(f"{plan}/{window.document}").gauss(0, 0.1) if plan else 0.0
        return 3.0 + (plan and 0.5 * int(window.task[-1]) + noise)

    monkeypatch.setattr(module, "sweep", losses)
    measured_on = portion(data, shuffled(pieces(data, 8), 0)[: round(share * 160)])
    rows = effects(losses(None, plans, measured_on), str(plans[0]), by_task=False)  # type: ignore[arg-type]
    wanted = statistics.median(row.mde for row in rows if row.metric == "delta_nll" and row.mde is not None)
    of = TimedText(None, None, None, None, plans, 12, share)  # type: ignore[arg-type]
    seen = resolution(of, data, 0.1 * 1e-3 * 13 * 160)
    assert seen == pytest.approx(wanted, rel=0.2)


def test_the_same_command_reads_the_same_text_again(
    own_model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clock says then; by the folder, by the command alone, and by `layerwise run FOLDER`."""
    monkeypatch.chdir(tmp_path)
    every = cutting(Sweep(model="demo"), layerwise.load(own_model), read_corpus(texts), 0)(None, None).tokens

    def planted(stack: Stack, plans: Sequence[Plan], data: EvalData, *_: Any) -> list[Work]:
        return [Work("planted", lambda limit: WorkCost(300.0 * data.tokens / every))]

    monkeypatch.setattr("layerwise.experiments.sweep.run.sweep_works", planted)
    monkeypatch.setattr("layerwise.experiments.sweep.run.slow_due", lambda *_: math.inf)
    config = Sweep(model=str(own_model), text=texts, families=("leave_one_out",), similarity=False, minutes=4.0)
    first = perform(config, Silent())
    manifest = Manifest.from_json((first.folder / MANIFEST).read_text())
    assert manifest.experiment["tokens"] != "all"
    monkeypatch.setattr(module, "seconds_of", None)
    assert perform(config, Silent()).folder == first.folder
    assert perform(read_experiment(first.folder), Silent()).folder == first.folder
    explicit = Sweep(
        model=str(own_model),
        text=texts,
        families=("leave_one_out",),
        similarity=False,
        tokens=manifest.experiment["tokens"],
        max_length=manifest.experiment.get("max_length"),
    )
    assert perform(explicit, Silent()).folder == first.folder
    assert json.loads((first.folder / MANIFEST).read_text())["experiment"]["minutes"] == 4.0
