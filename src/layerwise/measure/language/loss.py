"""The loss of a hidden state: negative log-likelihood in nats, per window, without ever holding all logits.

If the model's norm and head act on every token alone (verified when the model is loaded), only the scored tokens
are sent through them, in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from layerwise.data.batches import IGNORED, AnyBatch, Batch, LabelledBatch
from layerwise.errors import MeasureError
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.stack import Stack
from layerwise.stack.configuration import text_config_of
from layerwise.stack.executors.in_place import outside_passes
from layerwise.stack.inputs import accepted, evaluating, example_inputs, main_tensor

# Logits held at once, in entries: 64 MB in float32.
CHUNK = 1 << 24


@dataclass(frozen=True, slots=True)
class WindowLoss:
    """Summed NLL in nats over the scored tokens of one window, how many they are, and how many were the arg-max."""

    nll: float
    tokens: int
    hits: int


def window_losses(stack: Stack, state: Tensor, batch: AnyBatch) -> tuple[WindowLoss, ...]:
    """Compute the loss of every window of `batch` from the last hidden `state` (batch, seq, width).

    `nll = -sum_t log softmax(logits_t)[target_t]` over its scored tokens. Non-finite values are returned as they are.
    """
    if isinstance(batch, LabelledBatch):
        return _by_label(stack, state, batch)
    rows, columns = batch.scored.nonzero(as_tuple=True)
    rows, columns = rows.to(state.device), columns.to(state.device)
    wanted = batch.targets.to(state.device)[rows, columns]
    if stack.head_by_token:
        nll, hit = _by_token(stack, state, batch, rows, columns, wanted)
    else:
        nll, hit = _by_window(stack, state, batch, rows, columns, wanted)
    count = len(batch.windows)
    nlls = torch.zeros(count, dtype=torch.float64, device="cpu").index_add_(0, rows.cpu(), to_float64_cpu(nll))
    hits = torch.zeros(count, dtype=torch.int64, device="cpu").index_add_(0, rows.cpu(), hit.long().cpu())
    tokens = torch.bincount(rows.cpu(), minlength=count)
    return tuple(map(WindowLoss, nlls.tolist(), tokens.tolist(), hits.tolist()))


def _by_label(stack: Stack, state: Tensor, batch: LabelledBatch) -> tuple[WindowLoss, ...]:
    inputs = {name: value.to(state.device) for name, value in batch.inputs.items()}
    output = stack.finish(state, inputs)
    if batch.metric is not None:
        return _by_metric(output, batch, state.device)
    logits = main_tensor(output).clone()
    nll, hit = token_losses(logits, batch.targets.to(state.device))
    return tuple(WindowLoss(value, 1, int(right)) for value, right in zip(nll.tolist(), hit.tolist(), strict=True))


def _by_metric(output: Any, batch: LabelledBatch, device: torch.device) -> tuple[WindowLoss, ...]:
    assert batch.metric is not None
    given = {name: value.to(device) for name, value in batch.given.items()}
    values = torch.as_tensor(batch.metric(output, given), device=device)
    if values.shape != (len(batch.windows),):
        raise MeasureError(
            f"metric must return one number per row, shape ({len(batch.windows)},), got {tuple(values.shape)}."
        )
    return tuple(WindowLoss(value, 1, 0) for value in to_float64_cpu(values).tolist())


def token_losses(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """NLL in nats and arg-max correctness of every row of `logits` (rows, classes); overwrites `logits`."""
    logits = logits.float()
    best, guess = logits.max(dim=-1)
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    log_norm = logits.sub_(best.unsqueeze(-1)).exp_().sum(dim=-1).log_().add_(best)
    return log_norm - chosen, guess == targets


def _by_token(
    stack: Stack, state: Tensor, batch: Batch, rows: Tensor, columns: Tensor, wanted: Tensor
) -> tuple[Tensor, Tensor]:
    ids = batch.input_ids.to(state.device)
    length = ids.shape[1]
    chunk = max(1, CHUNK // int(stack.text_config.vocab_size))
    parts = []
    for start in range(0, len(rows), chunk):
        row, column = rows[start : start + chunk], columns[start : start + chunk]
        count = len(row)
        width = min(length, count)
        filled = torch.arange(-(-count // width) * width, device=state.device).clamp_(max=count - 1)
        row, column = row[filled], column[filled]
        packed = stack.changed(state, partial(_packed, rows=row, columns=column, width=width))
        logits = main_tensor(stack.finish(packed, {"input_ids": ids[row, column].view(-1, width)}))
        flat = logits.reshape(-1, logits.shape[-1])[:count]
        parts.append(token_losses(flat, wanted[start : start + count]))
    return torch.cat([nll for nll, _ in parts]), torch.cat([hit for _, hit in parts])


def _packed(state: Tensor, rows: Tensor, columns: Tensor, width: int) -> Tensor:
    return state[rows, columns].view(-1, width, *state.shape[2:])


def _by_window(
    stack: Stack, state: Tensor, batch: Batch, rows: Tensor, columns: Tensor, wanted: Tensor
) -> tuple[Tensor, Tensor]:
    inputs = {name: value.to(state.device) for name, value in batch.inputs.items()}
    parts = []
    for window in range(len(batch.windows)):
        mine = rows == window
        one = {name: value[window : window + 1] for name, value in inputs.items()}
        part = stack.changed(state, itemgetter(slice(window, window + 1)))
        logits = main_tensor(stack.finish(part, one))
        parts.append(token_losses(logits[0, columns[mine]], wanted[mine]))
    return torch.cat([nll for nll, _ in parts]), torch.cat([hit for _, hit in parts])


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
