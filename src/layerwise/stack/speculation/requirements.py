"""What self-speculation needs of a model and of the settings of a generation, and what it refuses beforehand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerationMode

from layerwise.errors import ModelError, UnsupportedModel
from layerwise.stack.blocks import block_list
from layerwise.stack.executors import occupancy
from layerwise.stack.inputs import evaluating, example_inputs
from layerwise.stack.rounding import gap
from layerwise.stack.speculation import shared_cache
from layerwise.stack.stack import Stack

_PROMPT = 8
_BEHIND = 4

STATEFUL = ("UnbatchedClassifierFreeGuidanceLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor")
"""Logits processors that remember their calls, and would count rejected drafts among them."""


def prove_rollback(stack: Stack) -> None:
    """Raise `UnsupportedModel` unless the model can verify several tokens at once and go back behind them.

    Tried on a small batch: a prompt, then wrong tokens that are cut off again, then several tokens at once; their
    logits must be those of the same tokens one by one, up to half of the digits of the model's dtype.
    """
    model: Any = stack.model
    name = stack.source.name
    can_generate = getattr(model, "can_generate", None)
    if can_generate is None or not can_generate():
        raise UnsupportedModel(f"cannot decode {name} speculatively: {type(model).__name__} does not generate text")
    if model.config.is_encoder_decoder:
        raise UnsupportedModel(
            f"cannot decode {name} speculatively: it is an encoder-decoder model; call generate without custom_generate"
        )
    if getattr(model, "_is_stateful", False):
        raise UnsupportedModel(
            f"cannot decode {name} speculatively: {type(model).__name__} keeps a state that cannot go back to before "
            "a rejected token; call generate without custom_generate"
        )
    inputs = example_inputs(model, _PROMPT + _BEHIND)
    if inputs is None or "input_ids" not in inputs:
        raise UnsupportedModel(f"cannot decode {name} speculatively: {type(model).__name__} does not read token ids")
    occupancy.refuse_while_running(block_list(model, stack.path), name, "decode speculatively")
    with evaluating(model), torch.no_grad():
        try:
            apart = _apart(model, inputs["input_ids"], name)
        except ModelError:
            raise
        except Exception as error:  # a model may fail in any way on a cache that it does not expect
            raise UnsupportedModel(
                f"cannot decode {name} speculatively: it fails on several tokens behind its cache: "
                f"{type(error).__name__}: {error}"
            ) from error
    allowed = math.sqrt(max(torch.finfo(stack.dtype).eps, torch.finfo(torch.float32).eps))
    if not apart <= allowed:
        raise UnsupportedModel(
            f"cannot decode {name} speculatively: {type(model).__name__} gives other logits for {_BEHIND} tokens at "
            f"once than for one after the other, apart by {apart:.2g} of their size; call generate without "
            "custom_generate"
        )


def _apart(model: Any, ids: Tensor, name: str) -> float:
    """How far the logits of the last tokens are apart, at once after a wrong turn and one by one."""
    prompt, behind = ids[:, :_PROMPT], ids[:, _PROMPT:]
    single = getattr(model(input_ids=prompt, use_cache=True), "past_key_values", None)
    if single is None:
        raise UnsupportedModel(
            f"cannot decode {name} speculatively: {type(model).__name__} keeps no cache of keys and values; call "
            "generate without custom_generate"
        )
    shared_cache.refuse_unlike(single, name)
    one_by_one = [
        model(input_ids=token, past_key_values=single, use_cache=True).logits[:, -1]
        for token in behind.unsqueeze(1).unbind(-1)
    ]
    several = model(input_ids=prompt, use_cache=True).past_key_values
    shared_cache.record_past(several)
    model(input_ids=behind.flip(0), past_key_values=several, use_cache=True)
    shared_cache.cut(several, None, _BEHIND)
    at_once = model(input_ids=behind, past_key_values=several, use_cache=True).logits
    return gap(at_once, torch.stack(one_by_one, dim=1))


def refuse_settings(config: Any, processors: Any, kwargs: dict[str, Any], name: str) -> None:
    """Raise `UnsupportedModel` for settings of `generate` that speculative decoding cannot honour."""
    wish = f"cannot decode {name} speculatively: "
    if config.get_generation_mode() not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        mode = config.get_generation_mode().value
        raise UnsupportedModel(f"{wish}the settings ask for {mode}; give num_beams=1, for greedy decoding or sampling")
    if not config.use_cache:
        raise UnsupportedModel(f"{wish}drafts live in the cache, and use_cache is False; give use_cache=True")
    if config.return_dict_in_generate and (config.output_attentions or config.output_hidden_states):
        raise UnsupportedModel(
            f"{wish}a token may come from one pass with others, so that there are no attentions and hidden states of "
            "its own; leave output_attentions and output_hidden_states out"
        )
    for each in processors:
        if type(each).__name__ in STATEFUL:
            raise UnsupportedModel(
                f"{wish}{type(each).__name__} remembers the tokens that it has seen, rejected drafts too; leave the "
                "setting out, or call generate without custom_generate"
            )
    if kwargs.get("inputs_embeds") is not None:
        raise UnsupportedModel(f"{wish}the prompt is given as embeddings; give its token ids")
