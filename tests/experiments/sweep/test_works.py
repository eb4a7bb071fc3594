"""The forecast of a sweep: the typical batch and layers from all over the model price it, and not what warms up.

A planted clock: every call takes `CALL` whatever its size, `TOKEN` a token, and `COLD` more the first time.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from layerwise.data.batches import batches
from layerwise.data.text.tokens import Window
from layerwise.experiments.engines.forecast import LIMIT, forecast
from layerwise.experiments.engines.steps import Work
from layerwise.experiments.sweep import works
from layerwise.measure.interventions.sweep import cost_estimate
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.stack import load
from train.tiny_models import tiny_llama

DEPTH, LARGE = 6, 64
CALL, TOKEN, COLD = 1.0, 0.01, 1e3
STACK = load(tiny_llama(DEPTH))
PLANS = [Plan.identity(DEPTH), *(Plan.parse(f"0-{end}") for end in range(DEPTH - 1))]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was called on batches of how many tokens; whatever is done is worth a forecast."""
    now, called, warm = 0.0, list[tuple[str, int]](), set[str]()

    def planted(name: str, times: int, result: Any) -> Any:
        def take(*args: Any) -> Any:
            nonlocal now
            size = next(_size(arg) for arg in args if _size(arg))
            now += times * (CALL + TOKEN * size) + COLD * (name not in warm)
            warm.add(name)
            called.append((name, size))
            return args[1] if name == "layer" else result

        return take

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr("layerwise.stack.Stack.apply", lambda stack, *args: planted("layer", 1, None)(*args))
    monkeypatch.setattr(works, "window_losses", lambda stack, *args: planted("head", 8, ())(*args))
    monkeypatch.setattr(works, "similarity_sums", lambda stack, of: planted("similarity", 20, None)(of[0]))
    monkeypatch.setattr(works, "plan_states", lambda stack, plan, of: planted("states", 10, None)(of[0]))
    monkeypatch.setattr(works, "effects", lambda *_: planted("intervals", 1, None)(text().batches[0]))
    return called


def _size(value: Any) -> int:
    """The tokens of a batch or of its hidden state; 0 for anything else."""
    if hasattr(value, "windows"):
        return int(value.size)
    return value.shape[0] * value.shape[1] if hasattr(value, "shape") else 0


def text() -> EvalData:
    """Batches of 64, 16, 6 and 2 tokens: half of them are small, and most tokens are in the largest."""
    lengths = [16] * 5 + [6, 2]
    cut = [Window(f"d{n}", "text", 0, tuple(range(1, 1 + size)), 1, size) for n, size in enumerate(lengths)]
    data = EvalData("planted", "0", 16, "next_token", batches(cut, LARGE, 0))
    assert [batch.size for batch in data.batches] == [LARGE, 16, 6, 2]
    return data


def of_sweep() -> tuple[list[Work], Any, EvalData]:
    data = text()
    due = cost_estimate(STACK, PLANS, data)
    return list(works.sweep_works(STACK, PLANS, data, due, PLANS[:2])), due, data


@pytest.mark.parametrize(("seconds", "few"), [(0.0, True), (2 * COLD + 100, False)])
def test_losses_come_first_and_are_priced_by_warm_typical_batches(
    seconds: float, few: bool, clock: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layerwise.experiments.engines.steps.SHARE", 1e6)
    (losses, *others), due, _ = of_sweep()
    assert [each.name for each in (losses, *others)] == ["losses", "intervals", "similarity", "states"]
    cost = losses.measure(seconds)
    heads = [size for name, size in clock if name == "head"]
    assert heads[:2] == [2, LARGE], "the smallest warms up, the median is priced"
    assert cost.measured_on == f"{len(heads) - 1} of 4 batches"
    if few:
        assert len(heads) == 2
        price = CALL / LARGE + TOKEN
        assert cost.seconds == pytest.approx(price * (due.layer_tokens + 8 * due.head_tokens))
    else:
        assert heads[2] == LARGE, "then the largest, which holds the most memory"


def test_hidden_states_are_compared_on_a_warm_typical_batch(
    clock: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (losses, _, similarity, states), _, data = of_sweep()
    losses.measure(0.0)
    clock.clear()
    tokens = sum(batch.size for batch in data.batches)
    for work, times in ((similarity, 20), (states, 2 * 10)):
        cost = work.measure(0.0)
        assert cost.seconds == pytest.approx(times * (CALL / LARGE + TOKEN) * tokens)
    assert clock == [(name, LARGE) for name in ("similarity", "similarity", "states", "states")]
    assert similarity.least() == pytest.approx(2 * DEPTH * (CALL + TOKEN * LARGE))


def test_hidden_states_that_have_no_time_are_not_priced(clock: list[tuple[str, int]]) -> None:
    assert 2 * DEPTH * (CALL + TOKEN * LARGE) > LIMIT / 4
    expected = forecast(of_sweep()[0])
    assert expected is not None
    assert expected.left_out == ("similarity", "states")
    assert {name for name, _ in clock} == {"layer", "head", "intervals"}
    assert "(losses: 1 of 4 batches in " in str(expected)
