"""Check that a model runs a plan correctly. Each law compares two computations that must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.plan import SUBLAYERS, Plan
from layerwise.plan.checks import layer_name, quantized_layers
from layerwise.stack.blocks import block_list
from layerwise.stack.checks.compatibility import both_ways
from layerwise.stack.executors.capture import Capture
from layerwise.stack.inputs import evaluating, example_inputs, main_tensor
from layerwise.stack.placement import named_tensors
from layerwise.stack.precision import in_float32
from layerwise.stack.rounding import HALF_OF_THE_DIGITS, Agreement, compare, gap
from layerwise.stack.stack import Stack

NEW_TOKENS = 8


DECODINGS: Mapping[str, dict[str, Any]] = {
    "greedy": {},
    "left-padded": {},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
    "beam search": {"num_beams": 3},
}
"""Decoding modes to check, with the arguments of `generate` that select them."""


@dataclass(frozen=True, slots=True)
class Law:
    """Result of checking one law. `holds` is None if the law does not apply; `detail` gives the reason."""

    name: str
    holds: bool | None
    detail: str


def verify(
    stack: Stack,
    plan: Plan | str,
    inputs: Mapping[str, Tensor] | None = None,
    *,
    progress: Callable[[float], None] = lambda share: None,
) -> list[Law]:
    """Check every law on `stack` under `plan`.

    The laws are: (1) Under the identity plan, the output equals that of the original model to the bit. (2) The model
    running the plan (`stack.under`) gives the same output as its layers called one by one (`stack.run`). (3) No weight
    is copied. (4) The model is unchanged afterwards. (5) The two sublayers of a layer, in sequence or in parallel, give
    its output. (6) Decoding gives the same output with and without a cache (greedy, left-padded, static cache, beam
    search). Laws 2, 5 and 6 hold up to rounding.

    Args:
        stack: The model.
        plan: The layer plan.
        inputs: A batch (default: a small random one).
        progress: Function that is called with the fraction of laws checked so far.

    Raises:
        UnsupportedModelError: If the plan has sublayers and a layer cannot be split.
    """
    if not isinstance(stack, Stack):
        raise MeasureError(
            f"stack must be a Stack, got {type(stack).__name__}. Open the model first: "
            "verify(layerwise.load(model), plan)."
        )
    plan = Plan.parse(plan)
    stack.check(plan)
    inputs = inputs or example_inputs(stack.model)
    if inputs is None:
        raise MeasureError(
            f"layerwise cannot build example inputs for {type(stack.model).__name__}. Pass some: "
            "verify(stack, plan, inputs)."
        )
    with evaluating(stack.model), torch.no_grad():
        before = main_tensor(stack.model(**inputs))
        with stack.under(Plan.identity(stack.depth)):
            identity = main_tensor(stack.model(**inputs))
        near, *others = in_float32(stack, inputs, lambda inputs: _check_laws(stack, plan, inputs, progress))
        return [
            _bitwise("identity plan in place = original model", identity, before),
            near,
            _no_copy_law(stack, plan),
            _bitwise("model unchanged afterwards", main_tensor(stack.model(**inputs)), before),
            *others,
        ]


def _check_laws(stack: Stack, plan: Plan, inputs: Mapping[str, Any], progress: Callable[[float], None]) -> list[Law]:
    laws: list[Law] = []
    total = 1 + len(_sublayer_steps(plan)) + len(DECODINGS)
    for law in _laws_up_to_rounding(stack, plan, inputs):
        laws.append(law)
        progress(len(laws) / total)
    return laws


def _sublayer_steps(plan: Plan) -> list[tuple[int, str | None]]:
    return list(dict.fromkeys((step.layer, step.source) for step in plan.steps() if step.sublayer is not None))


def _laws_up_to_rounding(stack: Stack, plan: Plan, inputs: Mapping[str, Any]) -> Iterator[Law]:
    captured, agreement = both_ways(stack, plan, inputs)
    yield _agreement_law("plan in place = plan step by step", agreement)
    yield from _half_laws(stack, plan, captured)
    yield from _decoding_laws(stack, plan, inputs)


def _no_copy_law(stack: Stack, plan: Plan) -> Law:
    if quantized_layers(plan):
        return Law("no weight is copied", None, "quantized layers have separate weights")
    models = [stack.model, *(source.model for source in stack.sources.values())]
    storage = {tensor.data_ptr() for model in models for _, tensor in named_tensors(model)}
    with stack.under(plan):
        visits = block_list(stack.model, stack.path)
        copied = [name for each in visits for name, tensor in named_tensors(each) if tensor.data_ptr() not in storage]
    return Law("no weight is copied", not copied, copied[0] if copied else f"{len(storage)} tensors, the same storage")


def _half_laws(stack: Stack, plan: Plan, captured: Capture) -> Iterator[Law]:
    halved = _sublayer_steps(plan)
    states = list(stack.states(Plan.identity(stack.depth), captured)) if halved else []
    for layer, source in halved:
        state, name = states[layer], layer_name(layer, None, source)
        whole = stack.apply(layer, state, captured, source=source)
        attn, mlp = (stack.apply(layer, state, captured, sublayer, source) for sublayer in SUBLAYERS)
        ways = {"in sequence": stack.apply(layer, attn, captured, "mlp", source), "in parallel": attn + mlp - state}
        laws = [
            _agreement_law(
                f"{name}.attn and {name}.mlp {way} = {name}", compare(output, whole, state.shape[-1], visits=1)
            )
            for way, output in ways.items()
        ]
        yield next((law for law in laws if law.holds), laws[0])


def _decoding_laws(stack: Stack, plan: Plan, inputs: Mapping[str, Any]) -> Iterator[Law]:
    ids = inputs.get("input_ids")
    can_generate = getattr(stack.model, "can_generate", None)
    if ids is None or can_generate is None or not can_generate():
        yield from (
            Law(f"cached decoding = recomputation ({name})", None, "the model does not generate") for name in DECODINGS
        )
        return
    full = torch.ones_like(ids)
    padded = full.clone()
    padded[0, : ids.shape[1] // 3] = 0
    for name, options in DECODINGS.items():
        mask = padded if name == "left-padded" else full
        yield _decoding_law(f"cached decoding = recomputation ({name})", stack, plan, ids, mask, options)


def _decoding_law(name: str, stack: Stack, plan: Plan, ids: Tensor, mask: Tensor, options: dict[str, Any]) -> Law:
    original = _result_or_error(lambda: _generate(stack, ids, mask, use_cache=True, **options))
    if isinstance(original, str):
        return Law(name, None, f"the original model fails ({original})")
    recomputing = {key: value for key, value in options.items() if key == "num_beams"}
    with stack.under(plan):
        fast = _result_or_error(lambda: _generate(stack, ids, mask, use_cache=True, **options))
        slow = _result_or_error(lambda: _generate(stack, ids, mask, use_cache=False, **recomputing))
    for side in (fast, slow):
        if isinstance(side, str):
            return Law(name, False, side)
    return Law(name, *_same_text(fast, slow))


def _same_text(fast: Any, slow: Any) -> tuple[bool, str]:
    new, texts = len(fast.logits), len(fast.sequences)
    unlike = (fast.sequences != slow.sequences).any(dim=0)[-new:].nonzero().flatten().tolist()
    outcome = f"token {unlike[0]} differs" if unlike else f"{new * texts} tokens equal"
    steps = range(unlike[0] + 1) if unlike else range(new)
    if len(fast.logits[0]) != texts:  # equally good beams may swap before the final text
        steps = steps[-1:] if unlike else range(0)
    if not steps:
        return True, outcome
    worst = Agreement(max(gap(fast.logits[step], slow.logits[step]) for step in steps), HALF_OF_THE_DIGITS)
    return worst.holds, f"{outcome}; logits {worst}"


def _generate(stack: Stack, ids: Tensor, mask: Tensor, **options: Any) -> Any:
    model: Any = stack.model
    config = model.generation_config
    padding = next((i for i in (config.pad_token_id, config.eos_token_id) if isinstance(i, int)), 0)
    return model.generate(
        input_ids=ids,
        attention_mask=mask,
        do_sample=False,
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        pad_token_id=padding,
        return_dict_in_generate=True,
        output_logits=True,
        **options,
    )


def _result_or_error(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0][:120] if lines else ''}"


def _bitwise(name: str, left: Tensor, right: Tensor) -> Law:
    gap = (left - right).abs().max().item()
    return Law(name, torch.equal(left, right), "bit-identical" if gap == 0 else f"they differ by {gap:.2g}")


def _agreement_law(name: str, agreement: Agreement) -> Law:
    return Law(name, agreement.holds, str(agreement))
