"""What stands around the layers of a model: the weights before the first one, and the weights behind the last.

Which is which is found by behaviour, as everything about a model is: weights that the state before the first layer
depends on, or the masks and positions that the layers are called with, are before them; those that the output depends
on when the last state is given are behind. A weight that is both is tied, as the word embedding of many language models
is to their head: it learns as one, and cannot learn as the other alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.checks.forward_trace import tensors
from layerwise.stack.inputs import evaluating, main_tensor


@dataclass(frozen=True, slots=True)
class EmbeddingsAndHead:
    """The parameters `before` the layers and `behind` them; `tied` names those that are in both.

    Parameters that nothing depends on, such as a pooler that the task does not read, are behind.
    """

    before: tuple[nn.Parameter, ...]
    behind: tuple[nn.Parameter, ...]
    tied: tuple[str, ...]


def find_embeddings_and_head(stack: Stack, inputs: Mapping[str, Any]) -> EmbeddingsAndHead:
    """What stands around the layers of `stack`, found on a batch of the model's arguments."""
    inside = {id(parameter) for parameter in block_list(stack.model, stack.path).parameters()}
    named = [(name, each) for name, each in stack.model.named_parameters() if id(each) not in inside]
    names, outside = [name for name, _ in named], [each for _, each in named]
    with evaluating(stack.model), torch.enable_grad():
        captured = stack.capture(**inputs)
        handed = [captured.state, *tensors([[call.args, call.kwargs] for call in captured.calls])]
        before = _reached(handed, outside)
        state = stack.changed(captured.state, lambda state: state.detach().requires_grad_())
        behind = _reached([main_tensor(stack.finish(state, captured.inputs))], outside)
    return EmbeddingsAndHead(
        before=tuple(each for each, is_reached in zip(outside, before, strict=True) if is_reached),
        behind=tuple(
            each for each, early, late in zip(outside, before, behind, strict=True) if late or not early
        ),
        tied=tuple(name for name, early, late in zip(names, before, behind, strict=True) if early and late),
    )  # fmt: skip


def _reached(outputs: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> list[bool]:
    """Whether the outputs depend on each parameter."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    roots = [output.sum() for output in outputs if output.requires_grad]
    if not (learning and roots):
        return [False] * len(parameters)
    gradients = torch.autograd.grad(roots, learning, allow_unused=True)
    reached = {id(each) for each, gradient in zip(learning, gradients, strict=True) if gradient is not None}
    return [id(parameter) in reached for parameter in parameters]
