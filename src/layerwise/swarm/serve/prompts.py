"""Prompts as token ids: texts, ids that a client made itself, and chats."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.swarm.answer import Decoding
from layerwise.swarm.serve.responses import Refusal
from layerwise.swarm.serve.schemas import ChatBody, ChatMessage, CompletionBody, GenerationBody
from layerwise.swarm.serve.settings import ServeSettings
from layerwise.swarm.serve.state import Service

COMPLETION_TOKENS = 16
"""New tokens of a completion that names no number, as in OpenAI's API; a chat then has as many as there is room for."""

NEXT_TURN = "\nuser:"
"""Where the answer to a chat ends in the form for models without a chat template."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's token ids, and how to decode what follows."""

    ids: tuple[int, ...]
    decoding: Decoding


async def completion_prompt(service: Service, settings: ServeSettings, body: CompletionBody) -> Prompt:
    """The prompt of a completion. Raises `Refusal` for several prompts, unknown ids, and one that is too long."""
    prompt: Any = body.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) != 1:
            raise Refusal(
                400,
                "unsupported_value",
                f"prompt is a list of {len(prompt)} prompts; send one request for each",
                param="prompt",
            )
        (prompt,) = prompt
    ids = await encoded(service.tokenizer, prompt) if isinstance(prompt, str) else tuple(prompt)
    known = len(service.tokenizer)
    unknown = next((each for each in ids if each >= known), None)
    if unknown is not None:
        raise Refusal(
            400, "invalid_value", f"prompt has the token id {unknown}, and this model has {known}", param="prompt"
        )
    return _prompt(service, settings, body, ids, "prompt", COMPLETION_TOKENS)


async def chat_prompt(service: Service, settings: ServeSettings, body: ChatBody) -> Prompt:
    tokenizer = service.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        ids = await encoded(tokenizer, plain_chat(body.messages))
        return _prompt(service, settings, body, ids, "messages", None, (NEXT_TURN,))
    messages = [{"role": each.role, "content": each.text} for each in body.messages]
    try:
        text = await asyncio.to_thread(
            tokenizer.apply_chat_template, messages, tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # a template is a program of its model's maker, and refuses by raising
        message = f"the model's chat template refuses these messages: {str(error)[:200]}"
        raise Refusal(400, "invalid_value", message, param="messages") from error
    # The template has written the special tokens.
    ids = await encoded(tokenizer, text, special=False)
    return _prompt(service, settings, body, ids, "messages", None)


def plain_chat(messages: Sequence[ChatMessage]) -> str:
    r"""A chat for a model that knows no form for it: a line a message, and the beginning of the answer's.

    >>> plain_chat([ChatMessage(role="user", content="Hello")])
    'user: Hello\nassistant:'
    """
    return "".join(f"{each.role}: {each.text}\n" for each in messages) + "assistant:"


async def encoded(tokenizer: Any, text: str, *, special: bool = True) -> tuple[int, ...]:
    """Encode a text in a thread. Raises `Refusal` for half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(400, "invalid_value", "the prompt has half a surrogate pair; write whole characters") from error
    made = await asyncio.to_thread(tokenizer, text, add_special_tokens=special)
    return tuple(made["input_ids"])


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
        raise Refusal(400, "invalid_value", f"{param} has no token; write at least one", param=param)
    most, wanted = settings.most_new_tokens, body.most_tokens
    if wanted is not None and wanted > most:
        raise Refusal(
            400, "invalid_value", f"max_tokens is {wanted}, and this server writes at most {most}", param="max_tokens"
        )
    if service.max_length is not None:
        room = service.max_length - len(ids)
        if room < max(wanted or 0, 1):
            new = f" with {wanted} new ones to follow" if wanted else ""
            message = (
                f"this model's maximum context length is {service.max_length} tokens, and the prompt has "
                f"{len(ids)}{new}; shorten either"
            )
            raise Refusal(400, "context_length_exceeded", message, param=param)
        most = min(most, room)
    count = wanted if wanted is not None else min(most, default or most)
    return Prompt(ids, body.decoding(count, settings.temperature, stops))
