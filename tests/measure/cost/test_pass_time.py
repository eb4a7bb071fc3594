import itertools
from collections.abc import Sequence
from functools import partial
from unittest.mock import MagicMock

import pytest
import torch

from conftest import tiny_llama
from layerwise.errors import MeasureError, UnsupportedModelError
from layerwise.measure.cost import pass_time
from layerwise.measure.cost.pass_time import (
    CACHE_SLOTS,
    MIN_ROUNDS,
    PASSES,
    PHASES,
    WARM_UP,
    CapturedPass,
    Phase,
    Setting,
    TimedPass,
    round_rows,
    round_times,
    run_in_turns,
)
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.stack import Stack, load
from layerwise.stack.inputs import evaluating
from stack.makers import bert

PLANS = [Plan.parse("0-5"), Plan.parse("0 (1|2) 5")]


def time_rows(stack: Stack, setting: Setting, plans: Sequence[Plan] = PLANS, rounds: int = MIN_ROUNDS) -> list[Score]:
    times = [round_times(stack, plans, [setting], number) for number in range(rounds)]
    return round_rows([str(plan) for plan in plans], [setting], times)


@pytest.mark.parametrize("phase", PHASES)
def test_each_plan_has_two_rows(phase: Phase) -> None:
    stack = load(tiny_llama().eval())
    rows = time_rows(stack, Setting(phase, 2, 4))
    assert [(row.plan, row.metric) for row in rows] == [
        (str(plan), metric) for plan in PLANS for metric in ("ms", "ratio")
    ]
    for row in rows:
        assert 0 < row.low <= row.value <= row.high
        assert (row.condition, row.documents) == (f"{phase}, batch 2, context 4", MIN_ROUNDS)
    assert (rows[1].low, rows[1].value, rows[1].high) == (1, 1, 1)


def test_ratios_are_paired_within_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = itertools.count()

    def seconds(self: TimedPass) -> float:
        running = self.stack.running
        return float(len(running.steps()) * (1 + next(passes) // (2 * PASSES)) ** 3)

    monkeypatch.setattr(TimedPass, "seconds", seconds)
    rows = time_rows(load(tiny_llama().eval()), Setting("prefill", 1, 2), rounds=9)
    assert rows[0].high > 10 * rows[0].low  # type: ignore[operator]
    assert (rows[3].low, rows[3].value, rows[3].high) == pytest.approx((4 / 6, 4 / 6, 4 / 6))


def test_rounds_have_random_orders() -> None:
    seen: list[str] = []

    def noted(name: str, number: int) -> tuple[str, int]:
        seen.append(name)
        return name, number

    works = {name: partial(noted, name) for name in "abcd"}
    assert list(run_in_turns(works, range(6))) == [{name: (name, number) for name in "abcd"} for number in range(6)]
    rounds = ["".join(seen[start : start + 4]) for start in range(0, 24, 4)]
    assert all(sorted(each) == list("abcd") for each in rounds)
    predecessors = {(one, other) for each in rounds for one, other in itertools.pairwise(each)}
    assert len(predecessors) > 6
    again = list(seen)
    list(run_in_turns(works, range(6)))
    assert seen[24:] == again
    list(run_in_turns(works, range(6), seed=1))
    assert seen[48:] != again


def test_decoding_requires_a_cache() -> None:
    with pytest.raises(UnsupportedModelError, match="Use prefill"):
        time_rows(load(bert().eval()), Setting("decode", 1, 4), PLANS[:1])


def test_timing_leaves_the_model_unchanged() -> None:
    stack = load(tiny_llama().eval())
    before = {name: each.clone() for name, each in stack.model.state_dict().items()}
    time_rows(stack, Setting("decode", 1, 4))
    assert stack.running is None
    assert all(torch.equal(each, before[name]) for name, each in stack.model.state_dict().items())


def test_unsupported_cuda_graphs_are_rejected_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = MagicMock()
    fake.cuda.graph.side_effect = RuntimeError("operation not permitted when stream is capturing\nmore")
    monkeypatch.setattr(pass_time, "torch", fake)
    with pytest.raises(MeasureError, match=r"\(operation not permitted when stream is capturing\).*--no-graphs"):
        CapturedPass(lambda: None, torch.device("cuda:1"))


@pytest.mark.parametrize("plan", ["0-5", "0 (1|2)*2 5", "0 0 3-5"])
@pytest.mark.parametrize("batch", [1, 2])
def test_static_cache_decodes_the_same_token(plan: str, batch: int) -> None:
    stack = load(tiny_llama())
    ids = torch.randint(3, 97, (batch, 12), generator=torch.Generator().manual_seed(0))
    with evaluating(stack.model), torch.inference_mode(), stack.under(plan):
        timed = TimedPass(stack, Setting("decode", batch, 11), graphs=False)
        grown, fixed = (timed._behind_a_cache(ids, static=static) for static in (False, True))
        expected = stack.model(**grown).logits
        torch.testing.assert_close(stack.model(**fixed).logits, expected, rtol=1e-4, atol=1e-4)
        for _ in range(WARM_UP + 1 + PASSES):
            stack.model(**fixed)
        assert fixed["past_key_values"].get_seq_length() <= 11 + CACHE_SLOTS
