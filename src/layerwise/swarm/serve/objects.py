"""Answers and chunks as OpenAI's API has them, with one field more: what the swarm says of its layers."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from layerwise.swarm.answer import Answer

DONE = b"data: [DONE]\n\n"
"""The end of a stream that has come to its end."""


def event(content: Any) -> bytes:
    """A server-sent event.

    >>> event({"a": 1})
    b'data: {"a":1}\\n\\n'
    """
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def swarm_fields(answer: Answer) -> dict[str, Any]:
    """The field `layerwise` of an answer: the plan that ran last, what it lacks, and what that is expected to cost."""
    expected = answer.expected
    return {
        "plan": answer.plan,
        "missing": list(answer.missing),
        "expected_nats": {
            "value": expected.nats,
            "low": expected.low,
            "high": expected.high,
            "basis": expected.basis,
        },
        "request": answer.request,
        "from_token": answer.from_token,
    }


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
        """Give the answer an id, under which the swarm works on it, too. No client can choose it."""
        object.__setattr__(self, "id", f"{'chatcmpl' if self.chat else 'cmpl'}-{uuid.uuid4().hex}")
        object.__setattr__(self, "created", int(time.time()))

    def whole(self, text: str, answer: Answer) -> dict[str, Any]:
        """The answer in one piece."""
        content = {"message": {"role": "assistant", "content": text, "refusal": None}} if self.chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": answer.finish}
        return {
            **self._head("chat.completion" if self.chat else "text_completion"),
            "choices": [choice],
            "usage": self.usage_counts(answer),
            "layerwise": swarm_fields(answer),
        }

    def opening(self) -> dict[str, Any] | None:
        """The chunk before the first text: a chat's says who speaks."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}) if self.chat else None

    def piece(self, text: str) -> dict[str, Any]:
        """A chunk with some text."""
        return self._chunk({"delta": {"content": text}} if self.chat else {"text": text})

    def closing(self, answer: Answer) -> list[dict[str, Any]]:
        """The chunk that says why the answer ends and what the swarm says of it, and the count of tokens if wanted."""
        last = self._chunk({"delta": {}} if self.chat else {"text": ""}, answer.finish)
        chunks = [{**last, "layerwise": swarm_fields(answer)}]
        if self.usage:
            counts = {"choices": [], "usage": self.usage_counts(answer), "layerwise": swarm_fields(answer)}
            chunks.append({**self._chunk({}), **counts})
        return chunks

    def usage_counts(self, answer: Answer) -> dict[str, int]:
        """Tokens of the prompt, of the answer, and of both."""
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
