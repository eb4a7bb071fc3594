"""Text that a model writes under plans: greedy decoding, with a cache slot for each visit of a layer.

Cached decoding equals recomputation (`layerwise verify`). The code of "Transformer Layers as Painters" (Sun et al.,
arXiv 2407.09298, figure 16) averages the keys and values of parallel layers, which is another computation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import find_objective
from layerwise.plan import Plan
from layerwise.results.rows import Continuation
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating


def continue_prompts(
    stack: Stack,
    plans: Sequence[Plan],
    prompts: Sequence[str],
    new_tokens: int,
    *,
    finished: Collection[tuple[str, str]] = (),
) -> Iterator[Continuation]:
    """Continue every prompt under every plan up to an end-of-text token, without the `finished` (plan, prompt) pairs.

    Raises `MeasureError` for a model that does not generate text, and for a prompt that fills the context.
    """
    encoded = {prompt: encode_prompt(stack, prompt, new_tokens) for prompt in dict.fromkeys(prompts)}
    with evaluating(stack.model), torch.inference_mode():
        for prompt, ids in encoded.items():
            wanted = [plan for plan in plans if (str(plan), prompt) not in finished]
            if not wanted:
                continue
            trained = _generate(stack, Plan.identity(stack.depth), ids, new_tokens)
            for plan in wanted:
                written = _generate(stack, plan, ids, new_tokens)
                same = sum(ours == theirs for ours, theirs in zip(written, trained, strict=False))
                yield Continuation(str(plan), prompt, _text(stack, ids, written), len(written), same)


def encode_prompt(stack: Stack, prompt: str, new_tokens: int) -> Tensor:
    """The tokens of a prompt, (1, seq), on the device of the model; raises as `continue_prompts` does."""
    if stack.tokenizer is None or not hasattr(stack.model, "generate") or find_objective(stack) != "next_token":
        raise MeasureError("the prompts of --prompt need a language model that continues texts; leave --prompt out")
    ids: Tensor = stack.tokenizer(prompt, return_tensors="pt")["input_ids"]
    room = getattr(stack.text_config, "max_position_embeddings", None)
    if ids.shape[1] == 0:
        raise MeasureError(f"the prompt {prompt!r} has no tokens; write a few words")
    if isinstance(room, int) and ids.shape[1] + new_tokens > room:
        raise MeasureError(
            f"a prompt of {ids.shape[1]} tokens and {new_tokens} new ones do not fit into the {room} positions of the "
            "model; shorten the prompt, or --new-tokens"
        )
    return ids.to(stack.device)


def _generate(stack: Stack, plan: Plan, ids: Tensor, new_tokens: int) -> list[int]:
    model: Any = stack.model
    config = model.generation_config
    padding = next((token for token in (config.pad_token_id, config.eos_token_id) if isinstance(token, int)), 0)
    with stack.under(plan):
        written = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=1,
            use_cache=True,
            max_new_tokens=new_tokens,
            pad_token_id=padding,
            temperature=None,
            top_p=None,
            top_k=None,
        )
    return [int(token) for token in written[0, ids.shape[1] :]]


def _text(stack: Stack, ids: Tensor, written: list[int]) -> str:
    assert stack.tokenizer is not None, "the prompt was encoded with it"
    decode = stack.tokenizer.decode
    prompt = [int(token) for token in ids[0]]
    before, whole = (decode(tokens, skip_special_tokens=True) for tokens in (prompt, prompt + written))
    if whole.startswith(before):
        return str(whole[len(before) :])
    return str(decode(written, skip_special_tokens=True))
