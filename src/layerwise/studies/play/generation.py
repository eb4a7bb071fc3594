"""Continuations of a prompt by the original model and under a plan, with the likelihood of each token under both."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from torch import Tensor

from layerwise.data.text.text_stream import TextStream
from layerwise.measure.language.continuations import encode_prompt, generate, score_continuation
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.studies.play.worker import Item, Job

MAX_CACHED = 8
"""Number of continuations of the original model that are kept."""


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """Settings for continuing a prompt; temperature 0 is greedy decoding."""

    prompt: str
    chat: bool
    new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class ColumnText:
    """The text of a column: its events, its tokens, and their log-likelihoods under the model that generated them."""

    column: str
    events: list[Item]
    ids: list[int]
    likelihoods: list[float]


class Generator:
    """Continues prompts; the original model's continuations are cached."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._cache: dict[PromptSettings, ColumnText] = {}

    def compare(self, job: Job, plan: Plan, settings: PromptSettings) -> None:
        """Emit the continuations of the original model and of `plan`, and then how likely each finds the other's."""
        ids = encode_prompt(self._stack, settings.prompt, settings.new_tokens, chat=settings.chat)
        identity = Plan.identity(self._stack.depth)
        with evaluating(self._stack.model):
            original = self._cache.pop(settings, None)
            if original is None:
                original = self._continue(job, "original", identity, ids, settings)
                if len(self._cache) == MAX_CACHED:
                    del self._cache[next(iter(self._cache))]
            else:
                for item in original.events:
                    job.emit({**item, "end": {**item["end"], "cached": True}} if "end" in item else item)
            self._cache[settings] = original
            if plan != identity:
                changed = self._continue(job, "plan", plan, ids, settings)
                for own, other in ((original, plan), (changed, identity)):
                    job.check()
                    likelihoods = score_continuation(self._stack, other, ids, own.ids)
                    differences = [a - b for a, b in zip(own.likelihoods, likelihoods, strict=True)]
                    shades = [each if math.isfinite(each) else None for each in differences]
                    job.emit({"column": own.column, "shades": shades})
        job.emit({"done": True})

    def _continue(self, job: Job, column: str, plan: Plan, ids: Tensor, settings: PromptSettings) -> ColumnText:
        text = TextStream(self._stack.tokenizer, ids[0].tolist())
        events: list[Item] = []
        tokens: list[int] = []

        def emit(**item: object) -> None:
            events.append({"column": column, **item})
            job.emit(events[-1])

        def receive(token: int) -> None:
            job.check()
            times.append(time.perf_counter())
            tokens.append(token)
            emit(token=text.add(token))

        job.check()
        emit(start={"prompt_tokens": ids.shape[1]})
        times = [time.perf_counter()]
        generate(
            self._stack,
            plan,
            ids,
            settings.new_tokens,
            temperature=settings.temperature,
            seed=settings.seed,
            receive=receive,
        )
        end = {
            "tokens": len(tokens),
            "first_token_ms": 1000 * (times[1] - times[0]),
            "tokens_per_second": len(tokens) / (times[-1] - times[0]),
            "finish": "length" if len(tokens) == settings.new_tokens else "stop",
            "cached": False,
        }
        emit(end=end)
        return ColumnText(column, events, tokens, score_continuation(self._stack, plan, ids, tokens))
