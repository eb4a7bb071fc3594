"""The structure of weights by depth: norm, spectral exponent, effective rank and outliers of every matrix.

All of them are functions of one matrix alone, so layers of unlike shapes are no obstacle; each number stands beside the
same number of the randomly initialised twin. Rows of measure `structure`, subject the layer, task the weight's path
inside the block or `all`:

    norm               Frobenius norm; `all`: of all matrices of the layer together
    spectral_exponent  Hill's estimate of the power law in the tail of the eigenvalues of W^T W,
                           1 + k / sum_{i > n - k} ln(lambda_i / lambda_{n-k})        k = n / 2
                       smaller for heavier tails, which are taken as a sign of training (AlphaPruning, Lu et al. 2024,
                       arXiv 2410.10912); `all`: mean over matrices
    effective_rank     exp of the entropy of the singular values divided by their sum (Roy and Vetterli 2007), from 1 to
                       the smaller side of the matrix; `all`: mean over matrices
    outlier_ratio      share of entries whose size is over 5 times the mean size of the matrix's entries: OWL's count
                       (Yin et al. 2024, arXiv 2310.05175) with inputs taken as alike, because theirs needs activations;
                       7e-5 for Gaussian entries; `all`: share of all entries of the layer

Null of each: `@random_twin`, the mean over six of the twin's layers spread over depth, and their least and greatest.
A matrix has its rows where it is not zero; one that is stored with more axes is taken by its last one.
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

OUTLIER = 5.0
"""How many times the mean size makes an entry an outlier, as in OWL."""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """What one matrix is reduced to: sums over its entries, and figures of its singular values."""

    squares: float
    entries: int
    outliers: int
    exponent: float | None
    effective_rank: float

    @property
    def norm(self) -> float:
        """The Frobenius norm."""
        return math.sqrt(self.squares)


def spectra(stack: Stack, *, seed: int = 0) -> list[Score]:
    """The structure of every weight matrix of `stack`, layer by layer; the module says which rows come back.

    `seed` draws the random twin; where a model has none the null rows are left out. Raises `MeasureError` for fewer
    than 4 layers, layers without matrices, and weights that are not finite.
    """
    return list(spectrum_rows(StackTensors(stack), twin_tensors(stack, seed)))


def spectrum_rows(tensors: Tensors, twin: Tensors | None = None) -> Iterator[Score]:
    """The rows of `spectra` for any source of weights, and the nulls of its twin where there is one."""
    require_depth(tensors, STRUCTURE)
    by_layer = {layer: _figures(layer_spectra(tensors, layer)) for layer in range(tensors.depth)}
    if not any(by_layer.values()):
        raise MeasureError(
            f"{STRUCTURE} is about weight matrices, and the {tensors.depth} layers of this model have none"
        )
    fresh = [] if twin is None else [_figures(layer_spectra(twin, layer)) for layer in evenly_spaced(range(twin.depth))]
    for layer, figures in by_layer.items():
        for (metric, task), value in figures.items():
            yield Score(STRUCTURE, metric, value, layer=layer, part=type_of(task))
            yield from _null(layer, metric, task, [each[metric, task] for each in fresh if (metric, task) in each])


def layer_spectra(tensors: Tensors, layer: int) -> dict[str, Spectrum]:
    """The spectrum of every matrix of one layer that is not zero, one matrix at a time in float64."""
    by_matrix = {}
    for name, shape in tensors.shapes(layer).items():
        stored = tensors.rows(layer, name, 0, shape[0])
        matrix = exact_on_cpu(stored.reshape(-1, shape[-1]))
        if not matrix.isfinite().all():
            raise not_finite(layer, name)
        if matrix.any():
            by_matrix[name] = spectrum(matrix)
    return by_matrix


def spectrum(matrix: Tensor) -> Spectrum:
    """The figures of one matrix (rows, columns), float64 and not zero.

    >>> round(spectrum(torch.eye(8, dtype=torch.float64)).effective_rank, 6)
    8.0
    """
    sizes = matrix.abs()
    values = _eigenvalues(matrix)
    shares = values.sqrt() / values.sqrt().sum()
    entropy = -float(torch.xlogy(shares, shares).sum())
    return Spectrum(
        squares=float(matrix.square().sum()),
        entries=matrix.numel(),
        outliers=int((sizes > OUTLIER * sizes.mean()).sum()),
        exponent=hill_exponent(values),
        effective_rank=math.exp(entropy),
    )


def hill_exponent(eigenvalues: Tensor) -> float | None:
    """Hill's estimate of the exponent of a density that falls as a power, from the upper half of `eigenvalues`.

    `None` where that half does not vary, or starts at zero: such a spectrum has no tail.
    """
    ordered = eigenvalues.sort().values
    count = len(ordered) // 2
    if count == 0:
        return None
    floor = float(ordered[-count - 1])
    if floor <= 0:
        return None
    logs = float((ordered[-count:] / floor).log().sum())
    return 1 + count / logs if logs > 1e-9 * count else None


def _eigenvalues(matrix: Tensor) -> Tensor:
    """The eigenvalues of W^T W, of which there are as many as the smaller side, from its smaller form."""
    square = matrix.T @ matrix if len(matrix) >= matrix.shape[1] else matrix @ matrix.T
    values = torch.linalg.eigvalsh(square)
    # Rounding leaves zero eigenvalues slightly off zero, on either side.
    return values.where(values > 1e-12 * values[-1], 0.0)


def _figures(by_matrix: Mapping[str, Spectrum]) -> dict[tuple[str, str], float]:
    """Values by metric and task, those of `all` last."""
    figures: dict[tuple[str, str], float] = {}
    for name, each in by_matrix.items():
        figures["norm", name] = each.norm
        figures["effective_rank", name] = each.effective_rank
        figures["outlier_ratio", name] = each.outliers / each.entries
        if each.exponent is not None:
            figures["spectral_exponent", name] = each.exponent
    if by_matrix:
        every = by_matrix.values()
        figures["norm", ALL] = math.sqrt(sum(each.squares for each in every))
        figures["effective_rank", ALL] = _mean([each.effective_rank for each in every])
        figures["outlier_ratio", ALL] = sum(each.outliers for each in every) / sum(each.entries for each in every)
        exponents = [each.exponent for each in every if each.exponent is not None]
        if exponents:
            figures["spectral_exponent", ALL] = _mean(exponents)
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
