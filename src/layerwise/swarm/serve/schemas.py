"""Request and response bodies of OpenAI's API, and conversion of prompts to token ids."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from layerwise.swarm.answer import (
    MAX_STOP_LENGTH,
    MAX_STOPS,
    MIN_PENALTY,
    Answer,
    Decoding,
    ExpectedCost,
    PromptScores,
)
from layerwise.swarm.serve.responses import RequestError
from layerwise.swarm.serve.settings import ServeSettings
from layerwise.swarm.serve.state import Service

TokenId: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
StopText: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]

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
"""Fields of OpenAI's API that are not implemented, with the values that are accepted in addition to null."""


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool = False


class GenerationBody(BaseModel):
    """Fields of completions and chats. Clients send the fields that OpenAI's API lacks as `extra_body`."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    repetition_penalty: Annotated[float, Field(ge=MIN_PENALTY, le=10)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def requested_tokens(self) -> int | None:
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
                message = f"{name}={str(value)[:60]} is not supported. Omit {name} or send {neutral}."
                raise RequestError(400, "unsupported_value", message, param=name)
            raise RequestError(400, "unknown_parameter", f"Unknown field {name[:60]!r}.", param=name)

    def decoding(self, max_tokens: int, temperature: float, stops: tuple[str, ...] = ()) -> Decoding:
        min_tokens = self.min_tokens or 0
        if min_tokens > max_tokens:
            message = f"min_tokens must be at most {max_tokens}, got {min_tokens}."
            raise RequestError(400, "invalid_value", message, param="min_tokens")
        return Decoding(
            max_new_tokens=max_tokens,
            min_new_tokens=min_tokens,
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
    """A prompt as text or token ids. `echo` with `logprobs` and one new token scores the prompt (used by lm-eval)."""

    prompt: str | list[TokenId] | list[str] | list[list[TokenId]]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=1)] | Literal[False] | None = None

    def check_others(self) -> None:
        super().check_others()
        has_logprobs = self.logprobs is not None and self.logprobs is not False
        if has_logprobs and not self.echo:
            message = "logprobs requires echo=true and max_tokens=1. Omit logprobs to generate text."
            raise RequestError(400, "unsupported_value", message, param="logprobs")
        if self.echo and not (has_logprobs and self.max_tokens == 1 and not self.stream):
            message = "echo requires logprobs=1, max_tokens=1 and stream=false. Omit echo to generate text."
            raise RequestError(400, "unsupported_value", message, param="echo")


class TextPart(BaseModel):
    """A part of a chat message. Only text is supported."""

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
    def requested_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class ImageBody(BaseModel):
    """An image to classify: a PNG, JPEG or WebP as base64 or data URL. `top` is the maximum number of classes."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = None
    image: Annotated[str, Field(min_length=1)]
    top: Annotated[int, Field(ge=1)] = 5


def format_swarm_fields(answer: Answer) -> dict[str, Any]:
    """Return the field `layerwise` of a response: plan, missing layers and cost, overall and for every span."""
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


def format_logprobs(tokenizer: Any, ids: Sequence[int], scores: PromptScores) -> dict[str, Any]:
    tokens = [str(tokenizer.decode([each])) for each in (*ids, scores.best[-1])]
    logprobs = (*scores.logprobs, scores.best_logprobs[-1])
    best = [str(tokenizer.decode([each])) for each in scores.best]
    # The most likely token comes last, so that it wins if two tokens have the same text.
    top = [
        {token: logprob, best_token: best_logprob}
        for token, logprob, best_token, best_logprob in zip(
            tokens[1:], logprobs, best, scores.best_logprobs, strict=True
        )
    ]
    offsets = [0, *accumulate(map(len, tokens[:-1]))]
    return {"tokens": tokens, "token_logprobs": [None, *logprobs], "top_logprobs": [None, *top], "text_offset": offsets}


def _nats_fields(expected: ExpectedCost) -> dict[str, Any]:
    return {"value": expected.nats, "low": expected.low, "high": expected.high, "basis": expected.basis}


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    chat: bool
    model: str
    prompt_tokens: int
    usage: bool = False
    id: str = field(init=False)
    created: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", f"{'chatcmpl' if self.chat else 'cmpl'}-{uuid.uuid4().hex}")
        object.__setattr__(self, "created", int(time.time()))

    def full(self, text: str, answer: Answer, logprobs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        content = {"message": {"role": "assistant", "content": text, "refusal": None}} if self.chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": logprobs, "finish_reason": answer.finish}
        return {
            **self._head("chat.completion" if self.chat else "text_completion"),
            "choices": [choice],
            "usage": self.usage_counts(answer),
            "layerwise": format_swarm_fields(answer),
        }

    def first_chunk(self) -> dict[str, Any] | None:
        return self._chunk({"delta": {"role": "assistant", "content": ""}}) if self.chat else None

    def chunk(self, text: str) -> dict[str, Any]:
        return self._chunk({"delta": {"content": text}} if self.chat else {"text": text})

    def last_chunks(self, answer: Answer) -> list[dict[str, Any]]:
        last = self._chunk({"delta": {}} if self.chat else {"text": ""}, answer.finish)
        chunks = [{**last, "layerwise": format_swarm_fields(answer)}]
        if self.usage:
            counts = {"choices": [], "usage": self.usage_counts(answer), "layerwise": format_swarm_fields(answer)}
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


COMPLETION_TOKENS = 16
"""Default max_tokens of a completion, as in OpenAI's API. A chat may fill the context."""

NEXT_TURN = "\nuser:"
"""Stop text of chats if the model has no chat template."""


@dataclass(frozen=True, slots=True)
class Prompt:
    ids: tuple[int, ...]
    decoding: Decoding


async def encode_completion(service: Service, settings: ServeSettings, body: CompletionBody) -> Prompt:
    """Tokenize the prompt of a completion.

    Raises `RequestError` for several prompts, for unknown token ids, and if the prompt is too long.
    """
    prompt: Any = body.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) != 1:
            message = f"prompt must be a single prompt, got {len(prompt)}. Send one request per prompt."
            raise RequestError(400, "unsupported_value", message, param="prompt")
        (prompt,) = prompt
    ids = await encode_prompt(service.tokenizer, prompt) if isinstance(prompt, str) else tuple(prompt)
    size = len(service.tokenizer)
    unknown = next((each for each in ids if each >= size), None)
    if unknown is not None:
        raise RequestError(
            400, "invalid_value", f"prompt must have token ids below {size}, got {unknown}.", param="prompt"
        )
    return _prompt(service, settings, body, ids, "prompt", COMPLETION_TOKENS)


async def encode_chat(service: Service, settings: ServeSettings, body: ChatBody) -> Prompt:
    tokenizer = service.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        ids = await encode_prompt(tokenizer, format_plain_chat(body.messages))
        return _prompt(service, settings, body, ids, "messages", None, (NEXT_TURN,))
    messages = [{"role": each.role, "content": each.text} for each in body.messages]
    try:
        text = await asyncio.to_thread(
            tokenizer.apply_chat_template, messages, tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # templates reject messages by raising
        message = f"The model's chat template rejects these messages: {str(error)[:200]}"
        raise RequestError(400, "invalid_value", message, param="messages") from error
    # The template already contains the special tokens.
    ids = await encode_prompt(tokenizer, text, special=False)
    return _prompt(service, settings, body, ids, "messages", None)


def format_plain_chat(messages: Sequence[ChatMessage]) -> str:
    r"""Format a chat for a model without a chat template.

    >>> format_plain_chat([ChatMessage(role="user", content="Hello")])
    'user: Hello\nassistant:'
    """
    return "".join(f"{each.role}: {each.text}\n" for each in messages) + "assistant:"


async def encode_prompt(tokenizer: Any, text: str, *, special: bool = True) -> tuple[int, ...]:
    """Tokenize a text in a thread. Raises `RequestError` if it has an unpaired surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            400, "invalid_value", "The prompt must be valid Unicode, but it has an unpaired surrogate."
        ) from error
    encoding = await asyncio.to_thread(tokenizer, text, add_special_tokens=special)
    return tuple(encoding["input_ids"])


def _prompt(
    service: Service,
    settings: ServeSettings,
    body: GenerationBody,
    ids: tuple[int, ...],
    param: str,
    default: int | None,
    stops: tuple[str, ...] = (),
) -> Prompt:
    if not ids:
        raise RequestError(400, "invalid_value", f"{param} must have at least one token.", param=param)
    limit, requested = settings.max_new_tokens, body.requested_tokens
    if requested is not None and requested > limit:
        raise RequestError(
            400, "invalid_value", f"max_tokens must be at most {limit}, got {requested}.", param="max_tokens"
        )
    if service.max_length is not None:
        remaining = service.max_length - len(ids)
        if remaining < max(requested or 0, 1):
            new = f" and {requested} new tokens are requested" if requested else ""
            message = (
                f"This model's maximum context length is {service.max_length} tokens, but the prompt has {len(ids)} "
                f"tokens{new}. Shorten the prompt{' or reduce max_tokens' if requested else ''}."
            )
            raise RequestError(400, "context_length_exceeded", message, param=param)
        limit = min(limit, remaining)
    count = requested if requested is not None else min(limit, default or limit)
    return Prompt(ids, body.decoding(count, settings.temperature, stops))
