"""The Frobenius norm and the effective rank of every weight matrix, by depth.

    norm             over all types: of all matrices of the layer together
    effective_rank   exp of the entropy of the normalized singular values (Roy and Vetterli 2007), at most the smaller
                     side; over all types: the mean over matrices

The null `random_twin` is the mean, minimum and maximum over six layers of a randomly initialized model. Zero matrices
have no rows. A weight with more than two axes is read as rows along its last axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.null_comparison import ALL, evenly_spaced, type_of
from layerwise.measure.weights.tensors import StackTensors, Tensors, not_finite, require_depth, twin_tensors
from layerwise.results.rows import Score
from layerwise.results.vocabulary import RANDOM_TWIN, STRUCTURE
from layerwise.stack import Stack


@dataclass(frozen=True, slots=True)
class MatrixStructure:
    """The sum of the squared entries of one matrix, and its effective rank."""

    squares: float
    effective_rank: float

    @property
    def norm(self) -> float:
        return math.sqrt(self.squares)


def weight_structure(stack: Stack, *, seed: int = 0) -> list[Score]:
    """Compute the norm and effective rank of every weight matrix of `stack`, layer by layer; `seed` draws the null.

    Raises `MeasureError` for fewer than 4 layers, layers without matrices, and weights that are not finite.
    """
    return list(structure_rows(StackTensors(stack), twin_tensors(stack, seed)))


def structure_rows(tensors: Tensors, twin: Tensors | None = None) -> Iterator[Score]:
    require_depth(tensors, STRUCTURE)
    by_layer = {layer: _figures(layer_structure(tensors, layer)) for layer in range(tensors.depth)}
    if not any(by_layer.values()):
        raise MeasureError(
            f"{STRUCTURE} is about weight matrices, and the {tensors.depth} layers of this model have none"
        )
    fresh = (
        [] if twin is None else [_figures(layer_structure(twin, layer)) for layer in evenly_spaced(range(twin.depth))]
    )
    for layer, figures in by_layer.items():
        for (metric, task), value in figures.items():
            yield Score(STRUCTURE, metric, value, layer=layer, part=type_of(task))
            yield from _null(layer, metric, task, [each[metric, task] for each in fresh if (metric, task) in each])


def layer_structure(tensors: Tensors, layer: int) -> dict[str, MatrixStructure]:
    """Compute the figures of every matrix of one layer that is not zero, one matrix at a time in float64."""
    by_matrix = {}
    for name, shape in tensors.shapes(layer).items():
        stored = tensors.rows(layer, name, 0, shape[0])
        matrix = exact_on_cpu(stored.reshape(-1, shape[-1]))
        if not matrix.isfinite().all():
            raise not_finite(layer, name)
        if matrix.any():
            by_matrix[name] = matrix_structure(matrix)
    return by_matrix


def matrix_structure(matrix: Tensor) -> MatrixStructure:
    """Compute the figures of one matrix (rows, columns), float64 and not zero.

    >>> round(matrix_structure(torch.eye(8, dtype=torch.float64)).effective_rank, 6)
    8.0
    """
    values = _eigenvalues(matrix)
    shares = values.sqrt() / values.sqrt().sum()
    entropy = -float(torch.xlogy(shares, shares).sum())
    return MatrixStructure(float(matrix.square().sum()), math.exp(entropy))


def _eigenvalues(matrix: Tensor) -> Tensor:
    square = matrix.T @ matrix if len(matrix) >= matrix.shape[1] else matrix @ matrix.T
    values = torch.linalg.eigvalsh(square)
    # Rounding leaves zero eigenvalues slightly off zero, on either side.
    return values.where(values > 1e-12 * values[-1], 0.0)


def _figures(by_matrix: Mapping[str, MatrixStructure]) -> dict[tuple[str, str], float]:
    figures: dict[tuple[str, str], float] = {}
    for name, each in by_matrix.items():
        figures["norm", name] = each.norm
        figures["effective_rank", name] = each.effective_rank
    if by_matrix:
        every = by_matrix.values()
        figures["norm", ALL] = math.sqrt(sum(each.squares for each in every))
        figures["effective_rank", ALL] = _mean([each.effective_rank for each in every])
    return figures


def _null(layer: int, metric: str, task: str, values: Sequence[float]) -> Iterator[Score]:
    if values:
        yield Score(
            STRUCTURE,
            metric,
            _mean(values),
            min(values),
            max(values),
            layer=layer,
            part=type_of(task),
            against=RANDOM_TWIN,
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
