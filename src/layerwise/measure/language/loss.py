"""Compute losses in nats without keeping all logits in memory.

If the head acts on each token independently, it runs on chunks of tokens, otherwise on one window at a time.
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

from layerwise.data.batches import IGNORED, AnyBatch, Batch, LabeledBatch
from layerwise.errors import MeasureError
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.stack import Stack
from layerwise.stack.configuration import text_config_of
from layerwise.stack.executors.in_place import outside_passes
from layerwise.stack.inputs import accepted, evaluating, example_inputs, main_tensor

CHUNK = 1 << 24
"""Maximum number of logits in memory: 64 MB in float32."""


@dataclass(frozen=True, slots=True)
class WindowLoss:
    """The summed NLL of one window in nats, its number of scored tokens, and how many of them were the arg-max."""

    nll: float
    tokens: int
    hits: int


def window_losses(stack: Stack, state: Tensor, batch: AnyBatch) -> tuple[WindowLoss, ...]:
    """Compute the loss of every window of `batch` from the last hidden `state` (batch, seq, hidden).

        nll = -sum_t log softmax(logits_t)[target_t]        over scored tokens t

    Non-finite losses are returned and do not raise an error.
    """
    if isinstance(batch, LabeledBatch):
        return _by_label(stack, state, batch)
    rows, _, nll, hit = score_tokens(stack, state, batch)
    count = len(batch.windows)
    nlls = torch.zeros(count, dtype=torch.float64, device="cpu").index_add_(0, rows, to_float64_cpu(nll))
    hits = torch.zeros(count, dtype=torch.int64, device="cpu").index_add_(0, rows, hit.long().cpu())
    tokens = torch.bincount(rows, minlength=count)
    return tuple(map(WindowLoss, nlls.tolist(), tokens.tolist(), hits.tolist()))


def score_tokens(stack: Stack, state: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the loss of every scored token of `batch` from the last hidden `state` (batch, seq, hidden).

    Returns:
        The rows and columns of the scored tokens (on the CPU), their NLL in nats, and whether they were the arg-max.
    """
    rows, columns = batch.scored.nonzero(as_tuple=True)
    placed = rows.to(state.device), columns.to(state.device)
    targets = batch.targets.to(state.device)[placed]
    score = _by_token if stack.head_by_token else _by_window
    return rows.cpu(), columns.cpu(), *score(stack, state, batch, *placed, targets)


def _by_label(stack: Stack, state: Tensor, batch: LabeledBatch) -> tuple[WindowLoss, ...]:
    inputs = {name: value.to(state.device) for name, value in batch.inputs.items()}
    output = stack.finish(state, inputs)
    if batch.metric is not None:
        return _by_metric(output, batch, state.device)
    logits = main_tensor(output).clone()
    nll, hit = token_losses(logits, batch.targets.to(state.device))
    return tuple(WindowLoss(value, 1, int(right)) for value, right in zip(nll.tolist(), hit.tolist(), strict=True))


def _by_metric(output: Any, batch: LabeledBatch, device: torch.device) -> tuple[WindowLoss, ...]:
    assert batch.metric is not None
    given = {name: value.to(device) for name, value in batch.given.items()}
    values = torch.as_tensor(batch.metric(output, given), device=device)
    if values.shape != (len(batch.windows),):
        raise MeasureError(
            f"metric must return one number per row, shape ({len(batch.windows)},), got {tuple(values.shape)}."
        )
    return tuple(WindowLoss(value, 1, 0) for value in to_float64_cpu(values).tolist())


def token_losses(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's NLL in nats and whether its target was the arg-max; overwrites `logits` (rows, classes)."""
    logits = logits.float()
    best, guess = logits.max(dim=-1)
    target_logits = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    log_norm = logits.sub_(best.unsqueeze(-1)).exp_().sum(dim=-1).log_().add_(best)
    return log_norm - target_logits, guess == targets


def _by_token(
    stack: Stack, state: Tensor, batch: Batch, rows: Tensor, columns: Tensor, targets: Tensor
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
        parts.append(token_losses(flat, targets[start : start + count]))
    return torch.cat([nll for nll, _ in parts]), torch.cat([hit for _, hit in parts])


def _packed(state: Tensor, rows: Tensor, columns: Tensor, width: int) -> Tensor:
    return state[rows, columns].view(-1, width, *state.shape[2:])


def _by_window(
    stack: Stack, state: Tensor, batch: Batch, rows: Tensor, columns: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    inputs = {name: value.to(state.device) for name, value in batch.inputs.items()}
    parts = []
    for window in range(len(batch.windows)):
        mask = rows == window
        one = {name: value[window : window + 1] for name, value in inputs.items()}
        part = stack.changed(state, itemgetter(slice(window, window + 1)))
        logits = main_tensor(stack.finish(part, one))
        parts.append(token_losses(logits[0, columns[mask]], targets[mask]))
    return torch.cat([nll for nll, _ in parts]), torch.cat([hit for _, hit in parts])


ScoredTokens = tuple[Tensor, Tensor, Tensor]
"""The rows of scored tokens, their losses in nats, and whether they were the arg-max."""


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModelHead:
    """A language model split into a body, the submodule `name` that contains the layers, and a head.

    The body runs once, and the head runs on chunks of its last hidden states. With a vocabulary of 50,257, the float32
    logits of one token take 201 kB.
    """

    model: nn.Module
    name: str

    @property
    def body(self) -> nn.Module:
        return self.model.get_submodule(self.name)

    def states(self, inputs: Mapping[str, Any]) -> tuple[Tensor, Any]:
        """Run the body without the head; return its last hidden states, (batch, seq, hidden), and its full output."""
        outputs: list[Any] = []

        def read(module: nn.Module, args: Any, output: Any) -> None:
            outputs.append(output)
            raise _BodyFinishedError

        handle = self.body.register_forward_hook(read)
        try:
            with suppress(_BodyFinishedError):
                self.model(**accepted(self.model, inputs))
        finally:
            handle.remove()
        return main_tensor(outputs[0]), outputs[0]

    def losses(self, states: Tensor, output: Any, ids: Tensor, targets: Tensor) -> Iterator[ScoredTokens]:
        """Yield the scores of all `targets` (batch, seq) that are not `IGNORED`, in chunks of `CHUNK` logits."""
        rows, columns = (targets != IGNORED).nonzero(as_tuple=True)
        tokens = max(1, CHUNK // int(getattr(text_config_of(self.model), "vocab_size", 1)))
        for start in range(0, len(rows), tokens):
            row, column = rows[start : start + tokens], columns[start : start + tokens]
            logits = self.logits(states[row, column], output, ids[row, column])
            yield row, *token_losses(logits, targets[row, column])

    def logits(self, states: Tensor, output: Any, ids: Tensor) -> Tensor:
        """Run the head on `states` (rows, hidden), given the input `ids` (rows,) and the body's full `output`."""
        with _replace_output(self.body, _with_states(output, states[None])):
            predicted = main_tensor(self.model(**accepted(self.model, {"input_ids": ids[None]})))
        return predicted[0]


# Names, not modules: a cached module would keep its Stack alive.
_BODIES: WeakKeyDictionary[Stack, str | None] = WeakKeyDictionary()


def find_head(stack: Stack) -> LanguageModelHead | None:
    """Find the head of `stack`, or return None if it does not act on each token independently.

    Modules that contain the list of layers are tried as the body, the outermost first. The result is cached.
    """
    if stack not in _BODIES:
        names = stack.path.split(".")[:-1]
        bodies = [".".join(names[:count]) for count in range(1, len(names) + 1)]
        head = find_head_behind(stack.model, bodies)
        _BODIES[stack] = None if head is None else head.name
    body = _BODIES[stack]
    return None if body is None else LanguageModelHead(stack.model, body)


def find_head_behind(model: nn.Module, bodies: Sequence[str]) -> LanguageModelHead | None:
    """Split `model` after the first of `bodies` (module names) for which the head acts on each token independently."""
    inputs = example_inputs(model)
    if inputs is None or "input_ids" not in inputs:
        return None
    with evaluating(model), torch.inference_mode():
        expected = main_tensor(model(**accepted(model, inputs)))
        for name in bodies:
            head = LanguageModelHead(model, name)
            if expected.ndim == 3 and _is_equivalent(head, inputs, expected):
                return head
    return None


def _is_equivalent(head: LanguageModelHead, inputs: Mapping[str, Tensor], expected: Tensor) -> bool:
    try:
        states, output = head.states(inputs)
        if expected.shape[:2] != states.shape[:2]:
            return False
        some = torch.arange(0, expected.shape[0] * expected.shape[1], 3, device=expected.device)
        logits = head.logits(states.flatten(0, 1)[some], output, inputs["input_ids"].flatten()[some])
    # A head that needs every token, or more outputs of its body, fails in any of these ways.
    except (RuntimeError, IndexError, TypeError, ValueError, KeyError, AttributeError):
        return False
    return _is_close(logits, expected.flatten(0, 1)[some])


class _BodyFinishedError(Exception):
    """Stops a forward pass after the body."""


@contextmanager
def _replace_output(body: nn.Module, output: Any) -> Iterator[None]:
    original = body.__dict__.get("forward")
    body.__dict__["forward"] = lambda *args, **kwargs: output
    try:
        with outside_passes(body):
            yield
    finally:
        if original is None:
            del body.__dict__["forward"]
        else:
            body.__dict__["forward"] = original


def _with_states(output: Any, states: Tensor) -> Any:
    if isinstance(output, Tensor):
        return states
    if isinstance(output, tuple):
        return (states, *[None] * (len(output) - 1))
    return type(output)(last_hidden_state=states)


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    if actual.shape != expected.shape:
        return False
    error, size = (torch.linalg.vector_norm(each.float()) for each in (actual - expected, expected))
    return bool(error <= 16 * torch.finfo(expected.dtype).eps * size)
