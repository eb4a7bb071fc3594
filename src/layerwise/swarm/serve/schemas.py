"""Bodies of requests and answers as OpenAI's API has them: what is understood, what is refused, what changes nothing,
and with one field more what the swarm says of its layers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from layerwise.swarm.answer import (
    LEAST_PENALTY,
    MOST_STOP_CHARACTERS,
    MOST_STOPS,
    Answer,
    Decoding,
    Expected,
    PromptScores,
)
from layerwise.swarm.serve.responses import Refusal

TokenId: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
StopText: TypeAlias = Annotated[str, Field(min_length=1, max_length=MOST_STOP_CHARACTERS)]

WITHOUT_EFFECT = frozenset(
    ("user", "metadata", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier")
)

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
}
"""Fields of OpenAI's API that are not implemented, and the values of each that ask for nothing; null is one too."""


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool = False


class GenerationBody(BaseModel):
    """Fields of completions and chats; those that are not OpenAI's are sent as `extra_body`."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    repetition_penalty: Annotated[float, Field(ge=LEAST_PENALTY, le=10)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MOST_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def most_tokens(self) -> int | None:
        return self.max_tokens

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def check_others(self) -> None:
        for name, value in (self.model_extra or {}).items():
            if name in WITHOUT_EFFECT or (name in NEUTRAL and _changes_nothing(value, NEUTRAL[name])):
                continue
            if name in NEUTRAL:
                neutral = " or ".join(repr(each) for each in NEUTRAL[name])
                raise Refusal(
                    400,
                    "unsupported_value",
                    f"this server does not implement {name}={str(value)[:60]}; leave {name} out, or write {neutral}",
                    param=name,
                )
            raise Refusal(400, "unknown_parameter", f"there is no field {name[:60]!r} here; leave it out", param=name)

    def decoding(self, most: int, temperature: float, stops: tuple[str, ...] = ()) -> Decoding:
        least = self.min_tokens or 0
        if least > most:
            raise Refusal(
                400, "invalid_value", f"min_tokens is {least}, and at most {most} are made", param="min_tokens"
            )
        return Decoding(
            max_new_tokens=most,
            min_new_tokens=least,
            temperature=temperature if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k or 0,
            min_p=self.min_p or 0.0,
            repetition_penalty=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            stop=self.stops + stops,
            seed=self.seed,
        )


def _changes_nothing(value: Any, neutral: tuple[Any, ...]) -> bool:
    return value is None or any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in neutral)


class CompletionBody(GenerationBody):
    """One prompt: a text or its token ids. `echo` with `logprobs` and one new token scores the prompt (lm-eval)."""

    prompt: str | list[TokenId] | list[str] | list[list[TokenId]]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=1)] | Literal[False] | None = None

    def check_others(self) -> None:
        super().check_others()
        has_logprobs = self.logprobs is not None and self.logprobs is not False
        if has_logprobs and not self.echo:
            message = "logprobs are those of a prompt: write echo=true and max_tokens=1 with it, or leave logprobs out"
            raise Refusal(400, "unsupported_value", message, param="logprobs")
        if self.echo and not (has_logprobs and self.max_tokens == 1 and not self.stream):
            message = "echo scores a prompt: write logprobs=1, max_tokens=1 and stream=false with it, or leave echo out"
            raise Refusal(400, "unsupported_value", message, param="echo")


class TextPart(BaseModel):
    """A part of a message; only texts are understood."""

    model_config = ConfigDict(strict=True)

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatBody(GenerationBody):
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None

    @property
    def most_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class ImageBody(BaseModel):
    """An image to classify, as base64 or as a data URL of PNG, JPEG or WebP; `top` bounds the classes that return."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = None
    image: Annotated[str, Field(min_length=1)]
    top: Annotated[int, Field(ge=1)] = 5


def swarm_fields(answer: Answer) -> dict[str, Any]:
    """The field `layerwise` of an answer: the plan that ran last, what was missing, what that is expected to cost, and
    the same for every span of tokens."""
    spans = [
        {
            "from_token": span.start,
            "to_token": span.stop,
            "plan": span.plan,
            "missing": list(span.missing),
            "expected_nats": _nats_fields(span.expected),
            "earlier_missing": list(span.earlier),
            "doubted_nodes": list(span.doubted),
        }
        for span in answer.spans
    ]
    return {
        "plan": answer.plan,
        "missing": list(answer.missing),
        "expected_nats": _nats_fields(answer.expected),
        "request": answer.request,
        "from_token": answer.from_token,
        "spans": spans,
    }


def logprob_fields(tokenizer: Any, ids: Sequence[int], scores: PromptScores) -> dict[str, Any]:
    tokens = [str(tokenizer.decode([each])) for each in (*ids, scores.best[-1])]
    logprobs = (*scores.logprobs, scores.best_logprobs[-1])
    best = [str(tokenizer.decode([each])) for each in scores.best]
    # The likeliest comes last: where two tokens have one text, its number is the one that counts.
    top = [
        {token: own, likeliest: most}
        for token, own, likeliest, most in zip(tokens[1:], logprobs, best, scores.best_logprobs, strict=True)
    ]
    offsets = [0, *accumulate(map(len, tokens[:-1]))]
    return {"tokens": tokens, "token_logprobs": [None, *logprobs], "top_logprobs": [None, *top], "text_offset": offsets}


def _nats_fields(expected: Expected) -> dict[str, Any]:
    return {"value": expected.nats, "low": expected.low, "high": expected.high, "basis": expected.basis}


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The form of an answer: of a completion or a chat, by which model, and to how many tokens of prompt."""

    chat: bool
    model: str
    prompt_tokens: int
    usage: bool = False
    id: str = field(init=False)
    created: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", f"{'chatcmpl' if self.chat else 'cmpl'}-{uuid.uuid4().hex}")
        object.__setattr__(self, "created", int(time.time()))

    def whole(self, text: str, answer: Answer, logprobs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        content = {"message": {"role": "assistant", "content": text, "refusal": None}} if self.chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": logprobs, "finish_reason": answer.finish}
        return {
            **self._head("chat.completion" if self.chat else "text_completion"),
            "choices": [choice],
            "usage": self.usage_counts(answer),
            "layerwise": swarm_fields(answer),
        }

    def opening(self) -> dict[str, Any] | None:
        return self._chunk({"delta": {"role": "assistant", "content": ""}}) if self.chat else None

    def piece(self, text: str) -> dict[str, Any]:
        return self._chunk({"delta": {"content": text}} if self.chat else {"text": text})

    def closing(self, answer: Answer) -> list[dict[str, Any]]:
        last = self._chunk({"delta": {}} if self.chat else {"text": ""}, answer.finish)
        chunks = [{**last, "layerwise": swarm_fields(answer)}]
        if self.usage:
            counts = {"choices": [], "usage": self.usage_counts(answer), "layerwise": swarm_fields(answer)}
            chunks.append({**self._chunk({}), **counts})
        return chunks

    def usage_counts(self, answer: Answer) -> dict[str, int]:
        made = len(answer.tokens)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self.prompt_tokens + made,
        }

    def _chunk(self, content: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self.usage else {}
        return {
            **self._head("chat.completion.chunk" if self.chat else "text_completion"),
            "choices": [choice],
            **usage,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}
