"""Cost of a plan in layers, milliseconds or bytes, as a sum over its layers and sublayers.

Milliseconds are timed at each module during a forward pass of the model; `measure_milliseconds` also times full plans
to check the sums. The cost of a sublayer assumes that the other one is not computed, although layerwise computes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from statistics import median
from typing import Any

import torch
from torch import nn

from layerwise.errors import UnsupportedModelError
from layerwise.measure.cost.pass_time import PassClock, Setting, TimedPass, run_in_turns
from layerwise.plan import Plan
from layerwise.plan.checks import SUBLAYERS, TYPES, other_sublayer, weight_type
from layerwise.search.budget import Unit
from layerwise.stack import Stack
from layerwise.stack.checks.checkpoint_files import numbers_of
from layerwise.stack.inputs import evaluating
from layerwise.stack.quantization import bytes_at_type, bytes_in_file

Piece = tuple[int, str | None]
"""A layer number and a sublayer, which is None for the full layer."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs of layers and sublayers (`pieces`), of quantized ones (`at_types`), and of everything else (`rest`)."""

    pieces: Mapping[Piece, float]
    rest: float
    at_types: Mapping[tuple[str, Piece], float] = field(default_factory=dict)

    def lookup(self, piece: Piece, kind: str | None) -> float:
        return self.pieces[piece] if kind is None else self.at_types[kind, piece]

    def sum_weights(self, plan: Plan) -> float:
        """Return the cost of all weights that `plan` uses; a layer that runs several times counts once."""
        needed = {(step.source, step.layer, step.sublayer) for step in plan.steps()}
        distinct = {each for each in needed if each[2] is None or (*each[:2], None) not in needed}
        pieces = (((layer, half), weight_type(source)) for source, layer, half in distinct)
        return self.rest + sum(self.lookup(piece, kind and kind.type) for piece, kind in pieces)


@dataclass(frozen=True)
class PlanCosts:
    """Costs of plans of a model in layers, bytes and, if they were measured, milliseconds."""

    depth: int
    bytes: CostTable
    ms: CostTable | None = None
    _cache: dict[tuple[Plan, Unit], float] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_stack(cls, stack: Stack, ms: CostTable | None = None) -> PlanCosts:
        return cls(stack.depth, count_bytes(stack), ms)

    def compute(self, plan: Plan, unit: Unit) -> float:
        if (plan, unit) not in self._cache:
            self._cache[plan, unit] = self._sum(plan, unit)
        return self._cache[plan, unit]

    def _sum(self, plan: Plan, unit: Unit) -> float:
        steps = [(step.layer, step.sublayer) for step in plan.steps()]
        if unit == "layers":
            return sum(1.0 if sublayer is None else 0.5 for _, sublayer in steps)
        if unit == "ms":
            if self.ms is None:
                raise ValueError("milliseconds were not measured. Pass ms to PlanCosts.")
            return self.ms.rest + sum(self.ms.pieces[step] for step in steps)
        return self.bytes.sum_weights(plan)


def count_bytes(stack: Stack) -> CostTable:
    """Return the bytes of every layer, of its sublayers if it can be split, and of all other weights.

    For a GGUF file, these are the bytes in the file; the bytes of a layer are divided among its sublayers as in memory.
    In a quantized layer, only the matrices are smaller. Shared weights count once.
    """
    pieces = _with_halves(stack, _bytes)
    rest = float(_bytes(stack.model)) - sum(pieces[layer, None] for layer in range(stack.depth))
    at_types = {
        (kind, piece): size
        for kind in TYPES
        for piece, size in _with_halves(stack, partial(bytes_at_type, name=kind)).items()
    }
    stored = bytes_in_file(stack)
    if stored is not None:
        pieces = {piece: size * stored[0][piece[0]] / pieces[piece[0], None] for piece, size in pieces.items()}
        rest = float(stored[1])
    return CostTable(pieces, rest, at_types)


def count_parameters(stack: Stack) -> CostTable:
    """Return the parameters of every layer, of its sublayers if it can be split, and of everything else."""
    pieces = _with_halves(stack, numbers_of)
    rest = float(numbers_of(stack.model)) - sum(pieces[layer, None] for layer in range(stack.depth))
    return CostTable(pieces, rest, {(kind, piece): size for kind in TYPES for piece, size in pieces.items()})


def _with_halves(stack: Stack, bytes_of: Callable[[nn.Module], int]) -> dict[Piece, float]:
    pieces = {piece: float(bytes_of(block)) for piece, block in _blocks(stack).items()}
    halves = {piece: float(bytes_of(branch)) for piece, branch in _branches(stack).items()}
    for layer, half in product(range(stack.depth), SUBLAYERS):
        if (layer, half) in halves:  # both sublayers need the norms
            pieces[layer, half] = pieces[layer, None] - halves[layer, other_sublayer(half)]
    return pieces


def _bytes(module: nn.Module) -> int:
    return sum(each.numel() * each.element_size() for each in module.parameters())


REPEATS = 25
"""Number of timed passes. The median is used."""

_WARM_UP = 2


def measure_milliseconds(
    stack: Stack, setting: Setting, plans: Sequence[Plan] = (), *, repeats: int = REPEATS
) -> tuple[CostTable, dict[Plan, float]]:
    """Time every layer, and forward passes under each of `plans`.

    Returns:
        The cost table in milliseconds, and the median time of a pass under each plan.

    Raises:
        UnsupportedModelError: If decoding is timed and the model has no cache.
    """
    blocks, branches, identity = _blocks(stack), _branches(stack), Plan.identity(stack.depth)

    def time_plan(plan: Plan, _: int) -> dict[Piece | Plan, float]:
        with stack.under(plan):
            seconds: dict[Piece | Plan, float] = {plan: TimedPass(stack, setting, graphs=False).seconds()}
            if plan == identity:
                seconds.update([*_time_layers(stack, setting, blocks), *_time_branches(stack, setting, branches)])
        return seconds

    timers = {plan: partial(time_plan, plan) for plan in (identity, *plans)}
    with evaluating(stack.model), torch.inference_mode():
        rounds = list(run_in_turns(timers, range(-_WARM_UP, repeats)))[_WARM_UP:]
    times = {key: 1000 * median(each[plan][key] for each in rounds) for plan in timers for key in rounds[0][plan]}
    table: dict[Piece, float] = {(layer, None): times[layer, None] for layer in range(stack.depth)}
    rest = times[identity] - sum(table.values())
    for layer, sublayer in product(range(stack.depth), SUBLAYERS):
        if (layer, sublayer) in times:
            table[layer, sublayer] = times[layer, None] - times[layer, other_sublayer(sublayer)]
    return CostTable(table, rest), {plan: times[plan] for plan in plans}


def _time_layers(stack: Stack, setting: Setting, blocks: Mapping[Piece, Any]) -> Iterator[tuple[Piece, float]]:
    clock = PassClock(stack.device)
    marks = _run_marked_pass(stack, setting, blocks, clock)
    pieces = list(marks)
    gaps = [clock.between(marks[one][1], marks[other][0]) for one, other in pairwise(pieces)]
    for piece, gap in zip(pieces, [*gaps, median(gaps or [0.0])], strict=True):
        yield piece, clock.between(*marks[piece]) + gap


def _time_branches(stack: Stack, setting: Setting, modules: Mapping[Piece, Any]) -> Iterator[tuple[Piece, float]]:
    clock = PassClock(stack.device)
    for piece, (start, end) in _run_marked_pass(stack, setting, modules, clock).items():
        yield piece, clock.between(start, end)


def _run_marked_pass(
    stack: Stack, setting: Setting, modules: Mapping[Piece, Any], clock: PassClock
) -> dict[Piece, tuple[Any, Any]]:
    if not modules:
        return {}
    prepared = TimedPass(stack, setting, graphs=False)
    marks: dict[Piece, list[Any]] = defaultdict(list)
    with ExitStack() as hooks:
        for piece, module in modules.items():
            hooks.enter_context(_mark_calls(module, clock, marks[piece]))
        prepared.seconds()
    return {piece: (first, last) for piece, (first, last) in marks.items()}


def _blocks(stack: Stack) -> dict[Piece, Any]:
    return {(layer, None): stack.block(layer) for layer in range(stack.depth)}


def _branches(stack: Stack) -> dict[Piece, Any]:
    try:
        paths = stack.branches().paths
    except UnsupportedModelError:
        return {}
    return {
        (layer, name): stack.block(layer).get_submodule(path)
        for layer, pair in enumerate(paths)
        for name, path in pair.items()
    }


@contextmanager
def _mark_calls(module: Any, clock: PassClock, marks: list[Any]) -> Iterator[None]:
    before = module.register_forward_pre_hook(lambda *_: marks.append(clock.mark()))
    after = module.register_forward_hook(lambda *_: marks.append(clock.mark()))
    try:
        yield
    finally:
        before.remove()
        after.remove()
