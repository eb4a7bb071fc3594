"""Find the two sublayers of a block: submodules whose *outputs* the block adds to the residual stream.

They are recognized by their behavior. A pair is accepted if, in float32, (1) the block is the identity when both
outputs are zero, (2) half of one output gives half of the update when the other output is zero, and (3) a change of one
token reaches other tokens when the output of `mlp` is zero, but not when that of `attn` is zero. Blocks that normalize
after the addition (BERT) or have a single sublayer (Mamba) are refused. If several pairs pass, the one computed last is
used. If a norm follows a sublayer (Gemma 2), only the norm's output passes condition (2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from layerwise.errors import UnsupportedModelError
from layerwise.plan.checks import SUBLAYERS, Sublayer, other_sublayer
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.capture import returned_state, with_returned_state
from layerwise.stack.inputs import evaluating
from layerwise.stack.precision import computing_as, in_float32
from layerwise.stack.rounding import ADDITIONS, apart, rounding

if TYPE_CHECKING:
    from layerwise.stack import Capture, Stack

Edit = Callable[[Tensor], Tensor]
Pair = Mapping[Sublayer, str]


@dataclass(frozen=True, slots=True)
class Branches:
    """For each layer, the paths (relative to its block) of the submodules that compute its sublayers."""

    paths: tuple[Pair, ...]


def find_branches(stack: Stack, captured: Capture) -> Branches:
    """Find the sublayers of every layer, using the hidden states of `captured` in float32 or wider.

    Raises `UnsupportedModelError` with the layer and the reason if a block cannot be split.
    """
    name = type(stack.model).__name__
    if captured.state.ndim < 3:
        raise UnsupportedModelError(f"{name} cannot be split into attn and mlp: its hidden state has no token axis")

    def find(inputs: Mapping[str, Any]) -> list[Pair | None]:
        return _find(stack, captured if inputs is captured.inputs else stack.capture(**inputs))

    with evaluating(stack.model), torch.no_grad():
        pairs = in_float32(stack, captured.inputs, find)
    if None in pairs:
        layer = pairs.index(None)
        raise UnsupportedModelError(
            f"{name} cannot be split into attn and mlp: in layer {layer} ({type(stack.block(layer)).__name__}), no two "
            "submodules add up to its update, one mixing tokens and one not. Blocks that normalize after the addition, "
            "or have a single sublayer, cannot be split. Use plans without sublayers"
        )
    return Branches(tuple(pair for pair in pairs if pair is not None))


def _find(stack: Stack, captured: Capture) -> list[Pair | None]:
    candidates = tuple(_candidates(stack, captured))
    # Layers are mostly alike: a pair that works for one layer is tried first on others of its class.
    known: dict[type, list[Pair]] = defaultdict(list)
    pairs: list[Pair | None] = []
    for candidate in candidates:
        with computing_as(candidate.state, candidate.block):
            pair = _known_pair(candidate, known)
            if pair is None and (pair := next(filter(candidate.proves, candidate.pairs()), None)):
                known[type(candidate.block)].append(pair)
        pairs.append(pair)
    for layer, candidate in enumerate(candidates):
        if pairs[layer] is None:  # a later layer may have found its pair
            with computing_as(candidate.state, candidate.block):
                pairs[layer] = _known_pair(candidate, known)
    return pairs


def _candidates(stack: Stack, captured: Capture) -> Iterator[_Candidate]:
    state = captured.state
    for layer, block in enumerate(block_list(stack.model, stack.path)):
        yield _Candidate(block, state, partial(stack.apply, layer, captured=captured))
        state = stack.apply(layer, state, captured)


def _known_pair(candidate: _Candidate, known: Mapping[type, Sequence[Pair]]) -> Pair | None:
    return next((pair for pair in known.get(type(candidate.block), ()) if candidate.proves(pair, known=True)), None)


@contextmanager
def edited(block: nn.Module, path: str, edit: Edit) -> Iterator[None]:
    """Apply `edit` to the output of the submodule at `path`, but only in this thread."""
    mine = get_ident()

    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if get_ident() != mine:
            return output
        # A block may add its other branch to this tensor in place (Falcon).
        return with_returned_state(output, edit(returned_state(output)).clone())

    with block.get_submodule(path).register_forward_hook(hook):
        yield


@contextmanager
def only(block: nn.Module, pair: Pair, sublayer: Sublayer) -> Iterator[None]:
    """Make the block run only one sublayer, by setting the output of the other to zero."""
    with edited(block, pair[other_sublayer(sublayer)], torch.zeros_like):
        yield


@dataclass(frozen=True)
class _Candidate:
    block: nn.Module
    state: Tensor
    run: Callable[[Tensor], Tensor]

    def pairs(self) -> Iterator[Pair]:
        silent: dict[frozenset[str], bool] = {}
        for first, second in permutations(reversed(self._writers()), 2):
            both = frozenset((first, second))
            pair: Pair = {"attn": first, "mlp": second}
            if both not in silent:
                silent[both] = self._succeeds(partial(self._is_identity_without, pair))
            if silent[both]:
                yield pair

    def proves(self, pair: Pair, known: bool = False) -> bool:
        return self._succeeds(partial(self._proves, pair, known))

    def _succeeds(self, test: Callable[[], bool]) -> bool:
        try:
            return test()
        except (RuntimeError, ValueError, TypeError, AttributeError):
            return False

    def _is_identity_without(self, pair: Pair) -> bool:
        return apart(self._update(dict.fromkeys(pair.values(), torch.zeros_like)), self.state) <= ADDITIONS

    def _proves(self, pair: Pair, known: bool) -> bool:
        if not self._is_identity_without(pair):
            return False
        alone = {sublayer: self._update({pair[other_sublayer(sublayer)]: torch.zeros_like}) for sublayer in SUBLAYERS}
        halved = {
            sublayer: self._update(
                {pair[other_sublayer(sublayer)]: torch.zeros_like, pair[sublayer]: lambda output: output / 2}
            )
            for sublayer in SUBLAYERS
        }
        if any(apart(halved[sublayer] - alone[sublayer] / 2, self.state) > ADDITIONS for sublayer in SUBLAYERS):
            return False
        mixes = self._mixes_tokens(pair, "attn", alone["attn"]) or (known and not alone["attn"].any())
        return mixes and not self._mixes_tokens(pair, "mlp", alone["mlp"])

    def _writers(self) -> list[str]:
        finished: list[str] = []
        with ExitStack() as hooks:
            for path, module in self.block.named_modules():
                if path:
                    hooks.enter_context(module.register_forward_hook(_record_writer(path, self.state, finished)))
            self.run(self.state)
        return [path for path in finished if finished.count(path) == 1]

    def _update(self, edits: Mapping[str, Edit], state: Tensor | None = None) -> Tensor:
        state = self.state if state is None else state
        with ExitStack() as hooks:
            for path, edit in edits.items():
                hooks.enter_context(edited(self.block, path, edit))
            return self.run(state) - state

    def _mixes_tokens(self, pair: Pair, sublayer: Sublayer, before: Tensor) -> bool:
        changed = self.state.clone()
        changed[:, 0] = changed[:, 0].flip(-1) + 1
        after = self._update({pair[other_sublayer(sublayer)]: torch.zeros_like}, changed)
        # Experts may compute the other tokens at other positions of a product.
        allowed = rounding(self.state.shape[-1], visits=1) * before.abs() + ADDITIONS * self.state.abs()
        return apart((after - before)[:, 1:], allowed[:, 1:]) > 1


def _record_writer(path: str, state: Tensor, finished: list[str]) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        value = output[0] if isinstance(output, tuple | list) and output else output
        if isinstance(value, Tensor) and value.shape == state.shape and value.is_floating_point():
            finished.append(path)

    return hook
