"""Compute the Frobenius norm and the effective rank of the weights of every layer.

    norm             of all matrices of the layer together
    effective_rank   mean over its matrices of exp(entropy of the normalized singular values) (Roy and Vetterli 2007)

The null `random_twin` is the mean, minimum and maximum over six layers of a randomly initialized model. Zero matrices
do not count. A weight with more than two axes is read as rows along its last axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.null_comparison import evenly_spaced
from layerwise.measure.weights.tensors import StackTensors, not_finite, twin_tensors
from layerwise.results.rows import Score
from layerwise.results.vocabulary import DELTAS, RANDOM_TWIN
from layerwise.stack import Stack


def weight_norms(stack: Stack, *, seed: int = 0) -> list[Score]:
    """Compute the norm and the effective rank of every layer of `stack`; `seed` draws the null.

    Raises `MeasureError` for layers without matrices, and weights that are not finite.
    """
    return list(norm_rows(StackTensors(stack), twin_tensors(stack, seed)))


def norm_rows(tensors: StackTensors, twin: StackTensors | None = None) -> Iterator[Score]:
    by_layer = {layer: _layer_figures(tensors, layer) for layer in range(tensors.depth)}
    if not any(by_layer.values()):
        raise MeasureError(f"layers must have weight matrices to have a norm, got {tensors.depth} layers without any.")
    drawn = [] if twin is None else [_layer_figures(twin, layer) for layer in evenly_spaced(range(twin.depth))]
    for layer, figures in by_layer.items():
        for metric, value in figures.items():
            yield Score(DELTAS, metric, value, layer=layer)
            values = [each[metric] for each in drawn if each]
            if values:
                mean = sum(values) / len(values)
                yield Score(DELTAS, metric, mean, min(values), max(values), layer=layer, against=RANDOM_TWIN)


def _layer_figures(tensors: StackTensors, layer: int) -> dict[str, float]:
    squares, ranks = [], []
    for name, shape in tensors.shapes(layer).items():
        matrix = exact_on_cpu(tensors.rows(layer, name, 0, shape[0]).reshape(-1, shape[-1]))
        if not matrix.isfinite().all():
            raise not_finite(layer, name)
        if matrix.any():
            squares.append(float(matrix.square().sum()))
            ranks.append(effective_rank(matrix))
    return {"norm": math.sqrt(sum(squares)), "effective_rank": sum(ranks) / len(ranks)} if ranks else {}


def effective_rank(matrix: Tensor) -> float:
    """Compute the effective rank of one matrix (rows, columns), float64 and not zero.

    >>> round(effective_rank(torch.eye(8, dtype=torch.float64)), 6)
    8.0
    """
    square = matrix.T @ matrix if len(matrix) >= matrix.shape[1] else matrix @ matrix.T
    values = torch.linalg.eigvalsh(square)
    # Rounding leaves zero eigenvalues slightly off zero, on either side.
    values = values.where(values > 1e-12 * values[-1], 0.0)
    shares = values.sqrt() / values.sqrt().sum()
    return math.exp(-float(torch.xlogy(shares, shares).sum()))
