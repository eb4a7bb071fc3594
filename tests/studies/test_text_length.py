"""Text within `minutes`: never more than fits, nearly as much, by a planted clock, and the same in a second run."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import layerwise
from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.errors import OptionError
from layerwise.measure.interventions.sweep import CostEstimate
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.measure.stats.statistics import minimum_detectable_effect
from layerwise.page.formatting import format_number
from layerwise.results import Manifest
from layerwise.results.run import MANIFEST
from layerwise.runner import text_length as module
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.text_length import MINUTES, USED, TextRequest, TimedText, choose_text, fit_tokens
from layerwise.runner.verb import current_call, verb
from layerwise.stack import Stack
from layerwise.studies.sweep.steps import DEFAULT_FAMILIES, FEWER_FAMILIES


@dataclass
class Read:
    tokens: int


@given(
    st.floats(0.0, 1e4),
    st.floats(1e-6, 1e3),
    st.floats(0.0, 10.0),
    st.floats(1.0, 1e5),
    st.integers(1, 500),
    st.integers(500, 10**8),
)
def test_what_is_chosen_fits_and_leaves_little(
    fixed: float, a_token: float, short: float, budget: float, least: int, most: int
) -> None:
    def takes(tokens: int) -> float:
        return fixed + a_token * (tokens + short * min(tokens, 1_000))

    chosen = fit_tokens(budget, lambda tokens: (Read(tokens), takes(tokens)), least, most)  # type: ignore[arg-type, return-value]
    if chosen is None:
        assert takes(min(least, most)) > budget
        return
    assert least <= chosen <= most
    assert takes(chosen) <= budget * (1 + 1e-9)
    if fixed < 0.2 * budget and not short and chosen < most:
        assert takes(chosen + 1) > 0.9 * budget


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


def cut(stack: Stack, corpus: Corpus = CORPUS) -> Callable[[int | None, int | None], EvalData]:
    return partial(tokenize, stack, corpus)


def request(*, is_named: bool = True, **options: Any) -> TextRequest:
    values = {"minutes": None, "tokens": None, "max_length": None, "families": DEFAULT_FAMILIES, **options}
    named = {name: values[name] for name in ("minutes", "tokens", "max_length")}
    return TextRequest(**named, is_named=is_named, verb="sweep", given=options, values=values, began=BEGAN)


def timed(stack: Stack, a_token: float, fixed: float = 0.0) -> TimedText:
    def cost(data: EvalData) -> CostEstimate:
        return CostEstimate(0, 0, 1, round(1e6 * (fixed + a_token * data.tokens)), 10**9)

    return TimedText(stack, cut(stack), cost, stack.depth)


@pytest.fixture(autouse=True)
def pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time_passes", lambda stack, data: 1.0)
    monkeypatch.setattr(module, "count_tokens", lambda stack, cost: cost.layer_tokens / 1e6)


def choose(stack: Stack, of: TimedText, **options: Any) -> module.ChosenText:
    return choose_text(request(**options), [({}, of)], CORPUS)


def test_the_text_of_a_demo_is_read_whole_whatever_the_clock_says(stack: Stack) -> None:
    own = choose_text(request(is_named=False), [({}, timed(stack, 1e9))], CORPUS)
    assert own.options == {}
    assert own.data.digest == choose(stack, timed(stack, 1.0), tokens="all").data.digest


@pytest.mark.parametrize("fixed", [0.0, 40.0])
def test_minutes_choose_tokens_at_the_pace(stack: Stack, clock: Callable[[float], None], fixed: float) -> None:
    clock(20.0)
    own = choose(stack, timed(stack, 0.02, fixed), minutes=2.0)
    taken = 20 + fixed + 0.02 * own.data.tokens
    assert 0.7 * USED * 120 <= taken <= USED * 120
    assert own.data.tokens <= own.options["tokens"]
    assert own.options["minutes"] == 2.0
    again = cut(stack)(*own.amount(request(minutes=2.0)))
    assert again.digest == own.data.digest
    assert f"--tokens {own.options['tokens']}" in own.says[0]


@pytest.mark.parametrize(("seconds", "compared", "share"), [(0.02, 4, 1.0), (0.02, 300, 0.5), (1e-6, 4, 1.0)])
def test_minutes_say_which_effect_the_text_can_resolve(
    stack: Stack, clock: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, compared: int, share: float
) -> None:
    monkeypatch.setattr(module, "measure_spread", lambda *_: 2.0)
    of = replace(timed(stack, seconds), compared=compared, share=share)
    own = choose(stack, of, minutes=2.0)
    units = int(share * own.data.units)
    error = 2.0 / (share * own.data.tokens) ** 0.5
    least = float(minimum_detectable_effect(error, units, comparisons=compared))
    assert f"minimum detectable effect: about {format_number(least)} nats/token" in own.says[-1]
    monkeypatch.setattr(module, "measure_spread", lambda *_: None)
    assert not any("resolve" in text for text in choose(stack, of, minutes=2.0).says)


def test_a_layer_that_does_nothing_spreads_nothing(stack: Stack) -> None:
    data = cut(stack)(None, None)
    assert module.measure_spread(stack, data)
    for parameter in stack.blocks[stack.depth // 2].parameters():
        torch.nn.init.zeros_(parameter)
    assert module.measure_spread(stack, data) == 0.0


def test_the_minutes_begin_when_a_verb_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    @verb("timed")
    def begun(reporter: Reporter | None = None) -> float:
        """Return when it began."""
        return current_call().began

    now = iter(range(9))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now))
    assert [begun(reporter=Silent()) for _ in range(2)] == [0, 1]


def test_minutes_in_which_nothing_can_be_concluded_are_refused(stack: Stack, clock: Callable[[float], None]) -> None:
    with pytest.raises(OptionError, match=r"^--minutes must be at least \d+, got 1: conclusions need 8 documents"):
        choose(stack, timed(stack, 1.0), minutes=1.0)


@pytest.mark.parametrize(("compared", "units"), [(6, 8), (7, 9), (262, 14)])
def test_as_many_windows_are_read_as_can_show_one_effect_among_all(
    stack: Stack, clock: Callable[[float], None], compared: int, units: int
) -> None:
    of = replace(timed(stack, 1e3), compared=compared)
    assert of.least_units == units
    least = compared * 2.0 ** (1 - units)
    assert least <= 0.05
    assert units == 8 or 2 * least > 0.05
    assert choose(stack, of).data.units >= units


def test_what_is_compared_on_a_share_of_the_text_needs_its_windows_there(stack: Stack) -> None:
    assert replace(timed(stack, 1.0), compared=30, share=0.5).least_units == 21


@pytest.mark.parametrize(
    ("context", "seconds", "longest", "units"),
    [(module.CONTEXT, 1e3, 128, 8), (48, 1e3, 48, 8), (48, 0.64, 48, 14), (48, 0.3, 128, 11)],
)
def test_windows_are_whole_or_of_the_least_context_and_never_shorter_however_long_they_take(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, clock: Any, context: int, seconds: float, longest: int, units: int
) -> None:
    """The model has 128 positions, and documents are longer: between the two lengths more documents are read."""
    assert module.CONTEXT == 256
    monkeypatch.setattr(module, "CONTEXT", context)
    own = choose(stack, timed(stack, seconds))
    assert own.data.units >= units
    assert max(len(window.ids) for window in own.data.windows) == longest
    assert own.options["minutes"] == MINUTES
    assert any("takes about" in text for text in own.says) == (seconds == 1e3)


def test_where_time_is_short_the_first_smaller_question_that_fits_is_answered_and_said(
    stack: Stack, clock: Callable[[float], None]
) -> None:
    fewer = [{"families": [*names]} for names in FEWER_FAMILIES]
    candidates = [({}, timed(stack, 1e2)), (fewer[0], timed(stack, 1e1)), (fewer[1], timed(stack, 0.1))]
    own = choose_text(request(), candidates, CORPUS)
    assert own.options["families"] == [*FEWER_FAMILIES[1]]
    assert 0.1 * own.data.tokens <= 60 * MINUTES * USED
    assert any("without the families painters, swap_adjacent" in text for text in own.says)
    enough = int(own.says[-1].rpartition(" ")[2])
    own = choose_text(request(minutes=float(enough)), candidates, CORPUS)
    assert "families" not in own.options


def test_a_short_text_is_read_whole_without_a_clock(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time_passes", None)
    monkeypatch.setattr(module, "fits_in", lambda stack, cost, data, allowed: allowed == USED * 600)
    assert choose(stack, timed(stack, 1e3)).options == {}


@given(st.integers(10, 10**6))
def test_tokens_that_are_given_are_not_measured(count: int) -> None:
    asked: list[tuple[int | None, int | None]] = []
    of = TimedText(None, lambda *cut: asked.append(cut), None, 1)  # type: ignore[arg-type, func-returns-value]
    choose_text(request(tokens=count), [({}, of)], CORPUS)
    assert asked == [(count, None)]


def test_the_same_command_reads_the_same_text_again(
    own_model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    every = cut(layerwise.load(own_model), read_corpus(texts))(None, None).tokens
    monkeypatch.setattr(module, "fits_in", lambda *_: False)
    monkeypatch.setattr(module, "count_tokens", lambda stack, cost: 300.0 * cost.head_tokens / (7 * every))
    options: dict[str, Any] = {"families": ("leave_one_out",), "similarity": False, "reporter": Silent()}
    first = layerwise.sweep(own_model, texts, minutes=4.0, **options)
    manifest = Manifest.from_json((first.folder / MANIFEST).read_text())
    assert manifest.experiment["tokens"] != "all"
    monkeypatch.setattr(module, "time_passes", None)
    assert layerwise.sweep(own_model, texts, minutes=4.0, **options).folder == first.folder
    assert layerwise.run(first.folder, reporter=Silent())[""].folder == first.folder
    chosen = {name: manifest.experiment.get(name) for name in ("tokens", "max_length")}
    assert layerwise.sweep(own_model, texts, **chosen, **options).folder == first.folder
    assert json.loads((first.folder / MANIFEST).read_text())["experiment"]["minutes"] == 4.0
