"""Generate text under plans by greedy decoding.

If a plan runs a layer several times, each occurrence has its own slot in the KV cache. The code of "Transformer Layers
as Painters" (Sun et al. 2024, arXiv 2407.09298, figure 16) averages the keys and values of parallel layers instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import find_objective
from layerwise.plan import Plan
from layerwise.results.rows import Continuation
from layerwise.stack import Stack
from layerwise.stack.inputs import accepted, evaluating, main_tensor


def continue_prompts(
    stack: Stack,
    plans: Sequence[Plan],
    prompts: Sequence[str],
    new_tokens: int,
    *,
    finished: Collection[tuple[str, str]] = (),
) -> Iterator[Continuation]:
    """Continue every prompt under every plan by at most `new_tokens` tokens.

    Generation stops at an end-of-text token. Pairs (plan, prompt) in `finished` are skipped. Raises `MeasureError` if
    the model does not generate text or a prompt is too long.
    """
    encoded = {prompt: encode_prompt(stack, prompt, new_tokens) for prompt in dict.fromkeys(prompts)}
    with evaluating(stack.model), torch.inference_mode():
        for prompt, ids in encoded.items():
            missing = [plan for plan in plans if (str(plan), prompt) not in finished]
            if not missing:
                continue
            original = generate(stack, Plan.identity(stack.depth), ids, new_tokens)
            for plan in missing:
                generated = generate(stack, plan, ids, new_tokens)
                same = sum(token == other for token, other in zip(generated, original, strict=False))
                yield Continuation(str(plan), prompt, _decode(stack, ids, generated), len(generated), same)


def encode_prompt(stack: Stack, prompt: str, new_tokens: int, *, chat: bool = False) -> Tensor:
    """Encode a prompt as tokens (1, seq) on the device of the model; `chat` applies its chat template, if any.

    Raises:
        MeasureError: If the model does not generate text, or if the prompt is empty or too long.
    """
    tokenizer = stack.tokenizer
    if tokenizer is None or not hasattr(stack.model, "generate") or find_objective(stack) != "next_token":
        raise MeasureError("A prompt needs a causal language model with a tokenizer. Use another model or no --prompt.")
    if chat and getattr(tokenizer, "chat_template", None):
        messages = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids: Tensor = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    else:
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    positions = getattr(stack.text_config, "max_position_embeddings", None)
    if ids.shape[1] == 0:
        raise MeasureError(f"A prompt must have at least one token, got {prompt!r}. Write a word.")
    if isinstance(positions, int) and ids.shape[1] + new_tokens > positions:
        raise MeasureError(
            f"Prompt and new tokens must fit into the {positions} positions of the model, got {ids.shape[1]} and "
            f"{new_tokens} tokens. Use a shorter prompt or fewer new tokens."
        )
    return ids.to(stack.device)


def score_continuation(stack: Stack, plan: Plan, ids: Tensor, tokens: Sequence[int]) -> list[float]:
    """Return log p in nats of each of `tokens`, given the prompt `ids` (1, seq) and the tokens before it."""
    answer = torch.tensor([list(tokens)], device=ids.device)
    inputs = {"input_ids": torch.cat([ids, answer], dim=1)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    with stack.under(plan, single_pass=True):
        logits = main_tensor(stack.model(**accepted(stack.model, inputs)))[0, ids.shape[1] - 1 : -1]
    scores: list[float] = logits.float().log_softmax(-1).gather(-1, answer[0, :, None])[:, 0].tolist()
    return scores


def generate(
    stack: Stack,
    plan: Plan,
    ids: Tensor,
    new_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
    receive: Callable[[int], None] | None = None,
) -> list[int]:
    """Generate at most `new_tokens` tokens after the prompt `ids` (1, seq) under `plan`.

    A temperature of 0 means greedy decoding. `receive` is called with each token; an exception that it raises ends the
    generation.
    """
    model: Any = stack.model
    config = model.generation_config
    padding = next((token for token in (config.pad_token_id, config.eos_token_id) if isinstance(token, int)), 0)
    devices = [stack.device] if stack.device.type == "cuda" else []
    with stack.under(plan), torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        generated = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=temperature > 0,
            num_beams=1,
            use_cache=True,
            max_new_tokens=new_tokens,
            pad_token_id=padding,
            temperature=temperature or None,
            top_p=None,
            top_k=None,
            streamer=None if receive is None else _TokenStreamer(receive),
        )
    return [int(token) for token in generated[0, ids.shape[1] :]]


class _TokenStreamer(BaseStreamer):
    def __init__(self, receive: Callable[[int], None]) -> None:
        self._receive = receive

    def put(self, value: Tensor) -> None:
        if value.dim() == 1:  # the prompt has two dimensions
            self._receive(int(value[0]))

    def end(self) -> None:
        pass


def _decode(stack: Stack, ids: Tensor, generated: list[int]) -> str:
    assert stack.tokenizer is not None, "the prompt was encoded with it"
    decode = stack.tokenizer.decode
    prompt = [int(token) for token in ids[0]]
    before, full = (decode(tokens, skip_special_tokens=True) for tokens in (prompt, prompt + generated))
    if full.startswith(before):
        return str(full[len(before) :])
    return str(decode(generated, skip_special_tokens=True))
