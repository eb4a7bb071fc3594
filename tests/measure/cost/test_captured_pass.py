"""Passes that are replayed as CUDA graphs: what can be seen of it without a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conftest import tiny_llama
from layerwise.errors import MeasureError
from layerwise.measure.cost import captured_pass
from layerwise.measure.cost.captured_pass import WARM_UP, CapturedPass
from layerwise.measure.cost.pass_time import PASSES, ROOM, Setting, TimedPass
from layerwise.stack import load
from layerwise.stack.inputs import evaluating


class Recorder:
    """In the place of `torch.cuda`: a graph that notes what happens, and refuses to record where it is told to."""

    def __init__(self, refusal: str = "") -> None:
        self.events: list[str] = []
        self.refusal = refusal

    def Stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: self.events.append("wait"))

    def current_stream(self) -> Any:
        return self.Stream()

    def stream(self, stream: Any) -> Any:
        return nullcontext()

    def CUDAGraph(self) -> Any:
        return SimpleNamespace(replay=lambda: self.events.append("replay"))

    @contextmanager
    def graph(self, graph: Any) -> Iterator[None]:
        self.events.append("record")
        if self.refusal:
            raise RuntimeError(self.refusal)
        yield


def recorded(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], refusal: str = "") -> Recorder:
    recorder = Recorder(refusal)
    monkeypatch.setattr(captured_pass, "torch", SimpleNamespace(cuda=recorder))
    captured = CapturedPass(lambda: (recorder.events.append("work"), work())[1])
    captured()
    captured()
    return recorder


def test_a_pass_is_warmed_up_recorded_once_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    events = recorded(monkeypatch, lambda: None).events
    assert events == ["wait", *["work"] * WARM_UP, "wait", "record", "work", "replay", "replay"]


def test_what_no_graph_can_hold_is_refused_with_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MeasureError, match=r"operation not permitted when stream is capturing.*--no-graphs"):
        recorded(monkeypatch, lambda: None, "operation not permitted when stream is capturing\nmore")


@pytest.mark.parametrize("plan", ["0-5", "0 (1|2)*2 5", "0 0 3-5"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_token_behind_a_cache_of_fixed_length_is_the_same_token(plan: str, batch: int) -> None:
    """What is replayed on a device computes what is timed elsewhere; and there is room for every pass."""
    stack = load(tiny_llama())
    ids = torch.randint(3, 97, (batch, 12), generator=torch.Generator().manual_seed(0))
    with evaluating(stack.model), torch.inference_mode(), stack.under(plan):
        timed = TimedPass(stack, Setting("decode", batch, 11), graphs=False)
        grown, fixed = (timed._behind_a_cache(ids, static=static) for static in (False, True))
        expected = stack.model(**grown).logits
        torch.testing.assert_close(stack.model(**fixed).logits, expected, rtol=1e-4, atol=1e-4)
        for _ in range(WARM_UP + 1 + PASSES):
            stack.model(**fixed)
        assert fixed["past_key_values"].get_seq_length() <= 11 + ROOM


def test_a_processor_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured_pass, "torch", SimpleNamespace(cuda=None))
    stack = load(tiny_llama())
    with evaluating(stack.model), torch.inference_mode():
        assert TimedPass(stack, Setting("decode", 1, 4)).seconds() > 0
