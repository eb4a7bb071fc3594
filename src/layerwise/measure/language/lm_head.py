"""The head of a language model apart from its body, so that logits are computed for some tokens at a time.

A vocabulary of 50,257 takes 201 kB of float32 logits per token. The body (the part that holds the blocks) runs once;
the model then runs on chunks of its last states. `find_head` verifies on random tokens that this gives equal logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from layerwise.data.batches import IGNORED
from layerwise.measure.language.loss import CHUNK, token_losses
from layerwise.stack import Stack
from layerwise.stack.configuration import text_config_of
from layerwise.stack.executors.in_place import outside_passes
from layerwise.stack.inputs import accepted, evaluating, example_inputs, main_tensor

ScoredTokens = tuple[Tensor, Tensor, Tensor]
"""Some tokens: the row of each, its loss in nats, and whether it was the first choice."""


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModelHead:
    model: nn.Module
    name: str

    @property
    def body(self) -> nn.Module:
        return self.model.get_submodule(self.name)

    def states(self, inputs: Mapping[str, Any]) -> tuple[Tensor, Any]:
        """The last states of the body, (batch, seq, width), and all that it returned; the head does not run."""
        outputs: list[Any] = []

        def read(module: nn.Module, args: Any, output: Any) -> None:
            outputs.append(output)
            raise _Read

        handle = self.body.register_forward_hook(read)
        try:
            with suppress(_Read):
                self.model(**accepted(self.model, inputs))
        finally:
            handle.remove()
        return main_tensor(outputs[0]), outputs[0]

    def losses(self, states: Tensor, output: Any, ids: Tensor, targets: Tensor) -> Iterator[ScoredTokens]:
        """Yield scores of the `targets` (batch, seq) that are not `IGNORED`, with at most `CHUNK` logits at once."""
        rows, columns = (targets != IGNORED).nonzero(as_tuple=True)
        tokens = max(1, CHUNK // int(getattr(text_config_of(self.model), "vocab_size", 1)))
        for start in range(0, len(rows), tokens):
            row, column = rows[start : start + tokens], columns[start : start + tokens]
            logits = self.logits(states[row, column], output, ids[row, column])
            yield row, *token_losses(logits, targets[row, column])

    def logits(self, states: Tensor, output: Any, ids: Tensor) -> Tensor:
        """The logits (rows, vocabulary) of `states` (rows, width) that are among those of `output`; `ids` (rows,)."""
        with _answering(self.body, _with_states(output, states[None])):
            predicted = main_tensor(self.model(**accepted(self.model, {"input_ids": ids[None]})))
        return predicted[0]


# The name of the body, and no module: what a Stack is kept alive by would never be let go of.
_BODIES: WeakKeyDictionary[Stack, str | None] = WeakKeyDictionary()


def find_head(stack: Stack) -> LanguageModelHead | None:
    """Return the head of the model of `stack`, or `None` if none acts on every token alone; cached by Stack.

    Every module that holds the list of blocks is tried as the body, the outermost first.
    """
    if stack not in _BODIES:
        names = stack.path.split(".")[:-1]
        bodies = [".".join(names[:count]) for count in range(1, len(names) + 1)]
        head = find_head_behind(stack.model, bodies)
        _BODIES[stack] = None if head is None else head.name
    body = _BODIES[stack]
    return None if body is None else LanguageModelHead(stack.model, body)


def find_head_behind(model: nn.Module, bodies: Sequence[str]) -> LanguageModelHead | None:
    """Return the head behind the first of the modules called `bodies` where it acts on every token alone."""
    inputs = example_inputs(model)
    if inputs is None or "input_ids" not in inputs:
        return None
    with evaluating(model), torch.inference_mode():
        own = main_tensor(model(**accepted(model, inputs)))
        for name in bodies:
            head = LanguageModelHead(model, name)
            if own.ndim == 3 and _proved(head, inputs, own):
                return head
    return None


def _proved(head: LanguageModelHead, inputs: Mapping[str, Tensor], own: Tensor) -> bool:
    try:
        states, output = head.states(inputs)
        if own.shape[:2] != states.shape[:2]:
            return False
        some = torch.arange(0, own.shape[0] * own.shape[1], 3, device=own.device)
        logits = head.logits(states.flatten(0, 1)[some], output, inputs["input_ids"].flatten()[some])
    # A head that needs every token, or more of its body, fails in its own way.
    except (RuntimeError, IndexError, TypeError, ValueError, KeyError, AttributeError):
        return False
    return _alike(logits, own.flatten(0, 1)[some])


class _Read(Exception):
    """Ends a forward pass when the body has returned."""


@contextmanager
def _answering(body: nn.Module, output: Any) -> Iterator[None]:
    own = body.__dict__.get("forward")
    body.__dict__["forward"] = lambda *args, **kwargs: output
    try:
        with outside_passes(body):
            yield
    finally:
        if own is None:
            del body.__dict__["forward"]
        else:
            body.__dict__["forward"] = own


def _with_states(output: Any, states: Tensor) -> Any:
    if isinstance(output, Tensor):
        return states
    if isinstance(output, tuple):
        return (states, *[None] * (len(output) - 1))
    return type(output)(last_hidden_state=states)


def _alike(actual: Tensor, own: Tensor) -> bool:
    if actual.shape != own.shape:
        return False
    error, size = (torch.linalg.vector_norm(each.float()) for each in (actual - own, own))
    return bool(error <= 16 * torch.finfo(own.dtype).eps * size)
