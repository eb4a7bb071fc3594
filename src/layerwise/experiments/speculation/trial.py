"""One prompt by every way of decoding: seconds, what was counted, and whether the texts are equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from layerwise.checkpoint.write import assembled
from layerwise.errors import LayerwiseError, UnsupportedModel
from layerwise.measure.cost.pass_time import PassClock
from layerwise.plan import Plan
from layerwise.results.vocabulary import DRAFTED, PLAIN
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.stack.rounding import HALF, rounding
from layerwise.stack.speculation import LayerPasses, Speculation

ASSISTED = "assistant"


@dataclass(frozen=True, slots=True)
class PromptTrial:
    """What one prompt gave: `seconds` by the way of decoding, the layer passes, and the new tokens of each text.

    `verdict` is `equal`, `tie` where the first other token is one that the model holds as likely, up to rounding, or
    `other`.
    """

    seconds: Mapping[str, float]
    passes: LayerPasses
    written: int
    verdict: str


class Ways:
    """The ways in which a prompt is continued: plainly, with the draft, and with an assistant that has its tensors.

    `note` says why there is no assistant, where there is none.
    """

    def __init__(self, draft: Speculation, new_tokens: int) -> None:
        self.draft = draft
        self.new_tokens = new_tokens
        self.options: dict[str, dict[str, Any]] = {PLAIN: {}, DRAFTED: {"custom_generate": draft}}
        self.note = ""
        try:
            assistant = twin(draft.stack, draft.draft)
        except LayerwiseError as refused:
            self.note = f"no assistant to compare with: {refused}"
            return
        assistant.generation_config.update(
            num_assistant_tokens=draft.tokens, num_assistant_tokens_schedule="constant"
        )  # fmt: skip
        self.options[ASSISTED] = {"assistant_model": assistant}

    def trial(self, prompt: Tensor, number: int) -> PromptTrial:
        """Continue a prompt (1, length) greedily by every way, which of them first depending on its `number`."""
        stack = self.draft.stack
        ids = prompt.to(stack.device)
        clock = PassClock(stack.device)
        names, texts, seconds = list(self.options), {}, {}
        start = number % len(names)
        for name in names[start:] + names[:start]:
            begun = clock.mark()
            texts[name] = self._text(ids, self.options[name])
            seconds[name] = clock.between(begun, clock.mark())
        written = texts[PLAIN].shape[1] - ids.shape[1]
        return PromptTrial(seconds, self.draft.passes, written, verdict(stack, ids, texts[PLAIN], texts[DRAFTED]))

    def _text(self, ids: Tensor, way: Mapping[str, Any]) -> Tensor:
        model: Any = self.draft.stack.model
        config = model.generation_config
        padding = next((i for i in (config.pad_token_id, config.eos_token_id) if isinstance(i, int)), 0)
        with evaluating(model):
            text: Tensor = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=self.new_tokens, do_sample=False,
                pad_token_id=padding, **way,
            )  # fmt: skip
        return text


def verdict(stack: Stack, ids: Tensor, plain: Tensor, drafted: Tensor) -> str:
    """`equal`, `tie` where the first other token is as likely up to rounding, else `other`."""
    shortest = min(plain.shape[1], drafted.shape[1])
    unlike = (plain[0, :shortest] != drafted[0, :shortest]).nonzero()
    if not len(unlike):
        return "equal" if plain.shape == drafted.shape else "other"
    position = int(unlike[0])
    with evaluating(stack.model), torch.no_grad():
        logits = stack.model(input_ids=plain[:, :position]).logits[0, -1].float()
    gap = (logits[plain[0, position]] - logits[drafted[0, position]]).abs() / logits.norm()
    allowed = (
        torch.finfo(stack.dtype).eps if stack.dtype in HALF else rounding(stack.text_config.hidden_size, stack.depth)
    )
    return "tie" if float(gap) <= allowed else "other"


def twin(stack: Stack, plan: Plan) -> Any:
    """A model of the plan beside that of `stack`, for `generate(assistant_model=...)`; no weight is copied.

    Raises `UnsupportedModel` for plans that no model of its own can hold: groups, halves, and layers that repeat.
    """
    steps = plan.steps()
    if len({step.layer for step in steps}) < len(steps) or any(step.sublayer or step.opens for step in steps):
        raise UnsupportedModel(f"an assistant is a model of its own, and {plan} is more than a row of distinct layers")
    made: Any = assembled(stack, plan)
    made.generation_config = type(made.generation_config).from_dict(made.generation_config.to_dict())
    own = dict(stack.model.named_buffers())
    prefix = f"{stack.path}."
    for name, buffer in list(made.named_buffers()):
        if buffer.device.type != "meta":
            continue
        source = name
        if name.startswith(prefix):
            slot, _, rest = name.removeprefix(prefix).partition(".")
            source = f"{prefix}{steps[int(slot)].layer}.{rest}"
        module, _, last = name.rpartition(".")
        made.get_submodule(module)._buffers[last] = own[source]
    if any(tensor.device == torch.device("meta") for tensor in (*made.parameters(), *made.buffers())):
        raise UnsupportedModel(f"{type(made).__name__} has tensors that its state dictionary does not name")
    return made
