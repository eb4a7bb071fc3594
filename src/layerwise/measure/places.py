"""What a layer writes at each place it may stand: the norms of its branches, and where its outputs lie.

Every layer is put at every position equally often: the orders are the rotations of random orders, so that over `depth`
passes each layer stands at each position once. What is seen at a place is then a mean over what may run before it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from layerwise.errors import UnsupportedModel
from layerwise.plan import PARTS, Plan
from layerwise.results.rows import Note, Score
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.inputs import evaluating
from layerwise.stack.state import read_state, returned_state

Collate = Callable[[Sequence[Any]], dict[str, Tensor]]
BASES = 3
EXAMPLES = 64
NEIGHBOURS = 15
"""How many nearest outputs UMAP looks at; what its authors start from."""
NO_UMAP = Note("embedding", "UMAP is not installed: pip install umap-learn, and ask again.")


def rotations(depth: int, bases: int, seed: int) -> tuple[Plan, ...]:
    """The `depth` rotations of each of `bases` random orders.

    >>> orders = [plan.order() for plan in rotations(4, 1, seed=0)]
    >>> sorted(order[2] for order in orders)
    [0, 1, 2, 3]
    """
    plans = []
    for base in range(bases):
        layers = list(range(depth))
        random.Random(f"{seed}/rotations/{base}").shuffle(layers)
        plans += [Plan.of(layers[shift:] + layers[:shift]) for shift in range(depth)]
    return tuple(plans)


def branch_norms(
    stack: Stack, arm: str, examples: Any, collate: Collate, *, seed: int = 0
) -> tuple[list[Score], list[Note]]:
    """Rows of measure `branches`: subject `layer,position`, task `arm`.

    `attn` and `mlp` are the mean Euclidean norm, over tokens, of what the branch adds; `share` is the norm of the
    layer's whole update over that of the state it read. A model whose layers cannot be split has `share` alone, and a
    note says why.
    """
    inputs = _inputs(stack, examples, collate, EXAMPLES)
    try:
        paths = stack.branches(stack.capture(**inputs)).paths
        notes = []
    except UnsupportedModel as refused:
        paths, notes = None, [Note("branches", f"{arm}: {refused}")]
    sums: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    with evaluating(stack.model), torch.inference_mode():
        for plan in rotations(stack.depth, BASES, seed):
            place = {layer: position for position, layer in enumerate(plan.order())}

            def note_state(layer: int, args: Any, kwargs: Any, output: Any, place: dict[int, int] = place) -> None:
                before, after = read_state(args, kwargs), returned_state(output)
                share = (after - before).norm(dim=-1) / before.norm(dim=-1).clamp_min(torch.finfo(before.dtype).tiny)
                sums[layer, place[layer], "share"].append(float(share.mean()))

            with ExitStack() as hooks:
                hooks.enter_context(_watched(stack, note_state))
                for layer, block in enumerate(block_list(stack.model, stack.path)):
                    for part in PARTS if paths is not None else ():
                        key = (layer, place[layer], part)
                        hooks.enter_context(_normed(block.get_submodule(paths[layer][part]), sums[key]))  # type: ignore[index]
                hooks.enter_context(stack.under(plan, single_pass=True))
                stack.model(**inputs)
    return [
        Score("branches", f"{layer},{position}", arm, metric, float(np.mean(values)))
        for (layer, position, metric), values in sorted(sums.items())
        if values
    ], notes


def outputs_by_place(
    stack: Stack, layer: int, examples: Any, collate: Collate, *, count: int, seed: int = 0
) -> NDArray[np.float64]:
    """The output of `layer` at every position for `count` examples: (depth, count, width).

    Of the tokens the first is taken, which is the class token of a ViT; of texts the mean.
    """
    found: dict[int, Tensor] = {}
    inputs = _inputs(stack, examples, collate, count)
    images = "pixel_values" in inputs
    with evaluating(stack.model), torch.inference_mode():
        for plan in rotations(stack.depth, 1, seed):
            position = plan.order().index(layer)

            def keep(at: int, args: Any, kwargs: Any, output: Any, position: int = position) -> None:
                if at == layer:
                    state = returned_state(output)
                    seen = state[:, 0] if images else state.mean(dim=1)
                    found[position] = seen.to("cpu", torch.float32, copy=True)

            with _watched(stack, keep), stack.under(plan, single_pass=True):
                stack.model(**inputs)
    return torch.stack([found[position] for position in range(stack.depth)]).double().numpy()


def embedding(
    stack: Stack, arm: str, examples: Any, collate: Collate, *, count: int = 50, seed: int = 0
) -> tuple[list[Score], list[Note]]:
    """Rows of measure `embedding`: the outputs of the middle layer at every position, laid out in the plane by UMAP.

    UMAP (McInnes et al. 2018) is not told the positions. Without umap-learn, or with no more outputs than it has
    neighbours to look at, there are no rows, and a note says so.
    """
    try:
        from umap import UMAP
    except ImportError:
        return [], [NO_UMAP]
    layer, images = stack.depth // 2, min(count, len(examples))
    if images * stack.depth <= NEIGHBOURS:
        few = f"{images} examples at {stack.depth} positions are too few: UMAP looks at {NEIGHBOURS} neighbours each"
        return [], [Note("embedding", f"{arm}: {few}.")]
    states = outputs_by_place(stack, layer, examples, collate, count=images, seed=seed)
    positions, _, width = states.shape
    flat = UMAP(n_neighbors=NEIGHBOURS, random_state=seed, n_jobs=1).fit_transform(
        states.reshape(positions * images, width)
    )
    points = flat.reshape(positions, images, 2)
    rows = [Score("embedding", "all", arm, "layer", layer)]
    for position in range(positions):
        for image in range(images):
            for axis, metric in enumerate(("x", "y")):
                value = float(points[position, image, axis])
                rows.append(Score("embedding", f"{image},{position}", arm, metric, value))
    return rows, []


def umap_installed() -> bool:
    """Whether outputs can be laid out."""
    return find_spec("umap") is not None


def _inputs(stack: Stack, examples: Any, collate: Collate, count: int) -> dict[str, Tensor]:
    """The first `count` examples as one batch, without their labels."""
    chosen = Subset(examples, range(min(count, len(examples))))
    batch = next(iter(DataLoader(chosen, batch_size=len(chosen), collate_fn=collate)))
    return {name: tensor.to(stack.device) for name, tensor in batch.items() if name != "labels"}


@contextmanager
def _watched(stack: Stack, see: Callable[[int, Any, Any, Any], None]) -> Iterator[None]:
    """Within the context `see(layer, args, kwargs, output)` is told of every call of a block."""

    def hook(layer: int) -> Any:
        return lambda module, args, kwargs, output: see(layer, args, kwargs, output)

    handles = [
        block.register_forward_hook(hook(layer), with_kwargs=True)
        for layer, block in enumerate(block_list(stack.model, stack.path))
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _normed(module: nn.Module, into: list[float]) -> Iterator[None]:
    """Within the context the mean norm of what `module` returns goes into the list."""

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        into.append(float(returned_state(output).norm(dim=-1).mean()))

    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
