"""UMAP layout of the outputs of all layers at all positions in the order (Freiberger et al. 2024, section 4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.activations.by_position import Collate, draw_rotations, layer_outputs, sample_batches
from layerwise.measure.stats.float64 import widen
from layerwise.results.rows import Note, Score
from layerwise.results.vocabulary import CHANCE, OUTPUT_LAYOUT
from layerwise.stack import Stack

BATCHES = 16
"""Number of batches, each of which runs in the rotations of another random order."""

UMAP_BYTES = 400 * 2**20
"""Memory that umap-learn and its compiler need: 273 MiB to import it, 150 MiB for 3,000 outputs."""

NEIGHBORS = 15
"""UMAP's default number of neighbors."""

MAX_POINTS = 3_000
"""Maximum number of points per variant that are stored for the plot. The layout is computed from all points."""

QUERIES = 600
"""Number of outputs whose nearest neighbors are counted."""

NO_UMAP = Note(OUTPUT_LAYOUT, "UMAP is not installed: pip install umap-learn, and run again.")


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    images: int = 100
    layers: tuple[int, ...] = ()

    def select_layers(self, depth: int) -> tuple[int, ...]:
        """Return the layers in ascending order (default: all); raise `MeasureError` if the model lacks one of them."""
        beyond = [layer for layer in self.layers if not 0 <= layer < depth]
        if beyond:
            raise MeasureError(f"Layers must be between 0 and {depth - 1}, got {beyond[0]}.")
        return tuple(sorted(set(self.layers))) or tuple(range(depth))


def embedding(
    stack: Stack,
    variant: str,
    examples: Any,
    collate: Collate,
    options: EmbeddingOptions | None = None,
    *,
    seed: int = 0,
) -> tuple[list[Score], list[Note]]:
    """Map the outputs of layers to two dimensions with UMAP (McInnes et al. 2018), and return rows of `embedding`.

        x, y             coordinates of the output of a layer at a position for an image (`example`)
        images, layers, points    numbers of images, layers and points
        same_position    fraction of an output's nearest neighbors from other images, in the original space, that are at
                         the same position (by chance 1 / positions)
        same_layer       fraction of these neighbors that are from the same layer (by chance 1 / layers)

    If umap-learn is not installed or there are too few outputs, there is only a note.
    """
    options = options or EmbeddingOptions()
    layers, images = options.select_layers(stack.depth), min(options.images, len(examples))
    if not is_umap_installed():
        return [], [NO_UMAP]
    from umap import UMAP

    points = images * stack.depth * len(layers)
    if points <= NEIGHBORS:
        few = f"{images} examples at {stack.depth} positions are too few, because UMAP needs {NEIGHBORS} neighbors each"
        return [], [Note(OUTPUT_LAYOUT, f"{variant}: {few}.")]
    states = outputs_by_position(stack, layers, examples, collate, count=images, seed=seed)
    # Initialize from the principal components: the spectrum of so large a graph takes too long.
    flat = UMAP(n_neighbors=NEIGHBORS, random_state=seed, n_jobs=1, init="pca").fit_transform(
        states.reshape(points, -1)
    )
    facts = {"images": images, "layers": len(layers), "points": points}
    rows = [Score(OUTPUT_LAYOUT, metric, float(count), variant=variant) for metric, count in facts.items()]
    rows += _neighbor_rows(variant, states, seed)
    rows += _point_rows(variant, layers, flat.reshape(*states.shape[:3], 2))
    return rows, []


def _point_rows(variant: str, layers: Sequence[int], plane: NDArray[np.float32]) -> Iterator[Score]:
    _, depth, images, _ = plane.shape
    shown = max(1, min(images, MAX_POINTS // (depth * len(layers))))
    for image in np.linspace(0, images - 1, shown).round().astype(int).tolist():
        for at, layer in enumerate(layers):
            for position in range(depth):
                point: dict[str, Any] = {"variant": variant, "layer": layer, "position": position, "example": image}
                for axis, value in zip("xy", plane[at, position, image].tolist(), strict=True):
                    yield Score(OUTPUT_LAYOUT, axis, float(value), **point)


def is_umap_installed() -> bool:
    return find_spec("umap") is not None


def outputs_by_position(
    stack: Stack, layers: Sequence[int], examples: Any, collate: Collate, *, count: int, seed: int = 0
) -> NDArray[np.float32]:
    """Return the pooled outputs of `layers` at every position, as (layers, positions, count, hidden)."""
    parts: list[Tensor] = []
    for number, inputs in enumerate(sample_batches(stack, examples, collate, count, seed, parts=BATCHES)):
        outputs: dict[tuple[int, int], Tensor] = {}
        for states in layer_outputs(stack, draw_rotations(stack.depth, f"{seed}/embedding/{number}"), inputs):
            outputs |= {(layer, at): state.float().cpu() for at, (layer, state) in enumerate(states.items())}
        rows = [torch.stack([outputs[layer, position] for position in range(stack.depth)]) for layer in layers]
        parts.append(torch.stack(rows))
    return torch.cat(parts, dim=2).numpy()


def _neighbor_rows(variant: str, states: NDArray[np.float32], seed: int) -> Iterator[Score]:
    layers, depth, images, width = states.shape
    if images < 2:
        return
    flat = torch.from_numpy(states).reshape(-1, width)
    index = torch.arange(len(flat), device="cpu")
    layer_of, position_of, image_of = index // (depth * images), index // images % depth, index % images
    queries = torch.randperm(len(flat), generator=torch.Generator().manual_seed(seed), device="cpu")[:QUERIES]
    shared = torch.zeros(2, dtype=torch.float64, device="cpu")
    count = min(NEIGHBORS, layers * depth)
    for start in range(0, len(queries), 50):
        part = queries[start : start + 50]
        distances = torch.cdist(flat[part], flat)
        distances[image_of[part][:, None] == image_of[None]] = torch.inf
        nearest = distances.topk(count, largest=False).indices
        for n, labels in enumerate((position_of, layer_of)):
            shared[n] += widen(labels[nearest] == labels[part][:, None]).mean(dim=1).sum()
    for metric, value, chance in zip(("same_position", "same_layer"), shared, (depth, layers), strict=True):
        if chance > 1:
            yield Score(OUTPUT_LAYOUT, metric, float(value) / len(queries), variant=variant, documents=images)
            yield Score(OUTPUT_LAYOUT, metric, 1 / chance, variant=variant, against=CHANCE)
