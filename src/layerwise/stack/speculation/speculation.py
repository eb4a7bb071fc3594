"""Self-speculative decoding: a plan of a model drafts tokens, the model itself verifies them in one pass.

    draft = layerwise.speculative(stack, "0-3 8-11")
    stack.model.generate(**inputs, max_new_tokens=100, custom_generate=draft)
    draft.passes.bound, draft.passes.acceptance

It is the loop alone that is not transformers' own: prompts, logits processors and warpers, stopping criteria and what
is returned are as `generate` has prepared them. A draft reads and writes the model's own cache
(`layerwise.stack.speculation.shared_cache`), so that it costs neither a second cache nor a second pass over the prompt.

A round drafts k tokens in k passes of the draft. The model then runs on the last token and the k drafts in one pass,
which gives its scores at k + 1 positions. Drafts are kept up to the first that the model would not have generated
(`layerwise.stack.speculation.acceptance`), and one token of the model's own follows, so that a round gives 1 to k + 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerateDecoderOnlyOutput

from layerwise.errors import ModelError, PlanError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack.checks.layer_types import refuse_loss_of_a_kind
from layerwise.stack.executors.in_place import slots_per_block
from layerwise.stack.speculation import shared_cache
from layerwise.stack.speculation.draft_length import DraftLength
from layerwise.stack.speculation.drafting import drafting
from layerwise.stack.speculation.layer_passes import LayerPasses
from layerwise.stack.speculation.requirements import prove_rollback, refuse_settings
from layerwise.stack.speculation.rounds import Rounds
from layerwise.stack.stack import Stack


def speculative(
    stack: Stack, draft: Plan | str, *, tokens: int = 4, adapts: bool = True, streamer: Any | None = None
) -> Speculation:
    """What `generate` takes as `custom_generate`, to decode with drafts by the plan `draft`.

    What is generated is what the model generates without: the same tokens in greedy decoding, up to ties of its own
    rounding (several tokens in one pass are other kernels than one), and tokens of the same distribution in sampling.
    `tokens` is the longest draft; one that `adapts` is shorter where the model keeps few
    (`layerwise.stack.speculation.draft_length`). A `streamer` is given here, because `generate` keeps its own from a
    `custom_generate`.

    Any plan of the model's layers drafts: layers left out, in another order, groups, halves. A layer that is visited
    again reads the past of its first visit. Whole batches are decoded, in step: a round keeps the drafts that every
    unfinished text keeps.

    Raises `PlanError` for a plan that the model cannot run, or with layers of other models, and `UnsupportedModel`
    with the reason for models whose past cannot be cut back, recurrent ones say.

    >>> from layerwise.stack import load
    >>> stack = load("demo")
    >>> ids = stack.tokenizer("def add(a, b):", return_tensors="pt")["input_ids"]
    >>> draft = speculative(stack, "0-7 9-11")
    >>> found = stack.model.generate(ids, max_new_tokens=12, do_sample=False, custom_generate=draft)
    >>> bool((found == stack.model.generate(ids, max_new_tokens=12, do_sample=False)).all())
    True
    """
    return Speculation(stack, Plan.parse(draft), tokens=tokens, adapts=adapts, streamer=streamer)


class Speculation:
    """A way of decoding, to be passed to `generate` as `custom_generate`; see `speculative`.

    `passes` counts the latest generation: its rounds, its drafts, and the bound on the speed-up that follows.
    """

    def __init__(self, stack: Stack, draft: Plan, *, tokens: int, adapts: bool, streamer: Any | None) -> None:
        if tokens < 1:
            raise ModelError(f"a draft of {tokens} tokens was asked for; give 1 or more, such as tokens=4")
        _check_draft(stack, draft)
        prove_rollback(stack)
        self.stack = stack
        self.draft = draft
        self.tokens = tokens
        self.adapts = adapts
        self.streamer = streamer
        self.passes = LayerPasses(stack.depth, len(draft.steps()))

    def __repr__(self) -> str:
        return f"Speculation({self.stack.source.name}, {str(self.draft)!r}, tokens={self.tokens})"

    @torch.no_grad()
    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        """What `generate` returns: token ids `(batch, prompt + new)`, or its output object where it was asked for one.

        Raises `ModelError` for another model than the Stack's, and `UnsupportedModel` for settings that have no
        meaning here (beams, attentions and hidden states as output) and for caches that cannot be cut back.
        """
        if model is not self.stack.model:
            raise ModelError(
                f"this draft is one of {self.stack.source.name}, and generate was called on another model: "
                "call stack.model.generate(..., custom_generate=layerwise.speculative(stack, draft))"
            )
        name = self.stack.source.name
        refuse_settings(generation_config, logits_processor, model_kwargs, name)
        cache = model_kwargs.get("past_key_values")
        shared_cache.refuse_unlike(cache, name)
        length = DraftLength(self.tokens, self.passes.share, self.adapts)
        with drafting(self.stack, self.draft) as draft:
            rounds = Rounds(
                model, draft, length, logits_processor, stopping_criteria, generation_config, self.streamer,
                input_ids, model_kwargs,
            )  # fmt: skip
            rounds.run()
        self.passes = LayerPasses(
            self.stack.depth, len(self.draft.steps()), rounds.tokens, rounds.count, rounds.drafted, rounds.accepted
        )
        if not generation_config.return_dict_in_generate:
            return rounds.ids
        return GenerateDecoderOnlyOutput(
            sequences=rounds.ids,
            scores=tuple(rounds.scores) if generation_config.output_scores else None,
            logits=tuple(rounds.logits) if generation_config.output_logits else None,
            past_key_values=cache,
        )


def _check_draft(stack: Stack, draft: Plan) -> None:
    """Raise `PlanError` for a draft that reads layers of other models, or that the model cannot run."""
    stack.check(draft)
    if draft.sources():
        named = ", ".join(sorted(str(name) for name in draft.sources()))
        raise PlanError(
            f"a draft reads the cache that its own model has filled, and {draft} has layers of {named}: "
            "draft with layers of the model itself, such as 0-3 8-11"
        )
    refuse_loss_of_a_kind(stack.model, stack.path, draft)
    if slots_per_block([stack.block(layer) for layer in range(stack.depth)]) > 1:
        raise UnsupportedModel(
            f"cannot decode {stack.source.name} speculatively: its blocks hold several attentions each; "
            "call generate without custom_generate"
        )
    if draft.has_sublayers():
        stack.branches()
