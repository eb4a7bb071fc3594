"""Continuations of a prompt by the original model and under a plan, with the likelihood of each token under both."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from layerwise.measure.language.continuations import encode_prompt, generate, score_continuation
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.studies.play.worker import Item, Job
from layerwise.swarm.text_stream import TextStream

MAX_CACHED = 8
"""Number of continuations of the original model that are kept."""


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """How a prompt is continued; temperature 0 is greedy."""

    prompt: str
    chat: bool
    new_tokens: int
    temperature: float
    seed: int


@dataclass(slots=True)
class ColumnText:
    """A continuation: its tokens, their texts, its end, and the log-likelihoods of the tokens under the model."""

    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    end: Item = field(default_factory=dict)
    own: list[float] = field(default_factory=list)


class _Streamer(BaseStreamer):
    """Emits each token; raises `CanceledError` between two forward passes of a canceled job."""

    def __init__(self, job: Job, name: str, text: TextStream) -> None:
        self.column = ColumnText()
        self.times: list[float] = []
        self._job, self._name, self._text = job, name, text
        self._has_prompt = False

    def put(self, value: Tensor) -> None:
        self._job.check()
        if not self._has_prompt:
            self._has_prompt = True
            return
        self.times.append(time.perf_counter())
        token = int(value.reshape(-1)[0])
        self.column.ids.append(token)
        self.column.texts.append(self._text.add(token))
        self._job.emit({"column": self._name, "token": self.column.texts[-1]})

    def end(self) -> None:
        pass


class Generator:
    """Continues prompts; the original model's continuations are cached."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._cache: OrderedDict[PromptSettings, ColumnText] = OrderedDict()

    def compare(self, job: Job, plan: Plan, decoding: PromptSettings) -> None:
        """Emit the continuations of the original model and of `plan`, and then how likely each finds the other's."""
        ids = encode_prompt(self._stack, decoding.prompt, decoding.new_tokens, chat=decoding.chat)
        identity = Plan.identity(self._stack.depth)
        with evaluating(self._stack.model):
            original = self._cache.get(decoding)
            if original is None:
                original = self._continue(job, "original", identity, ids, decoding)
                original.own = score_continuation(self._stack, identity, ids, original.ids)
                self._cache[decoding] = original
                if len(self._cache) > MAX_CACHED:
                    self._cache.popitem(last=False)
            else:
                self._cache.move_to_end(decoding)
                _replay(job, original, ids.shape[1])
            if plan != identity:
                changed = self._continue(job, "plan", plan, ids, decoding)
                pairs = [
                    ("original", plan, original.own, original.ids),
                    ("plan", identity, score_continuation(self._stack, plan, ids, changed.ids), changed.ids),
                ]
                for name, other, own, tokens in pairs:
                    job.check()
                    job.emit(
                        {"column": name, "shades": _subtract(own, score_continuation(self._stack, other, ids, tokens))}
                    )
        job.emit({"done": True})

    def _continue(self, job: Job, name: str, plan: Plan, ids: Tensor, decoding: PromptSettings) -> ColumnText:
        prompt = [int(token) for token in ids[0]]
        streamer = _Streamer(job, name, TextStream(self._stack.tokenizer, prompt))
        job.emit({"column": name, "start": {"prompt_tokens": len(prompt)}})
        began = time.perf_counter()
        with torch.random.fork_rng(devices=[self._stack.device] if self._stack.device.type == "cuda" else []):
            torch.manual_seed(decoding.seed)
            generate(self._stack, plan, ids, decoding.new_tokens, temperature=decoding.temperature, streamer=streamer)
        column, times = streamer.column, streamer.times
        column.end = {
            "tokens": len(times),
            "first_token_ms": 1000 * (times[0] - began),
            "tokens_per_second": len(times) / (times[-1] - began),
            "finish": "length" if len(times) == decoding.new_tokens else "stop",
            "cached": False,
        }
        job.emit({"column": name, "end": column.end})
        return column


def _subtract(own: Sequence[float], other: Sequence[float]) -> list[float | None]:
    differences = [first - second for first, second in zip(own, other, strict=True)]
    return [each if abs(each) < float("inf") else None for each in differences]


def _replay(job: Job, column: ColumnText, prompt_tokens: int) -> None:
    job.emit({"column": "original", "start": {"prompt_tokens": prompt_tokens}})
    for text in column.texts:
        job.emit({"column": "original", "token": text})
    job.emit({"column": "original", "end": {**column.end, "cached": True}})
