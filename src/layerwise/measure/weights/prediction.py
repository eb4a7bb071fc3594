"""The weights of a layer as its neighbours would have them: a ridge prediction that has not seen what it predicts.

Every matrix of a layer is read as units (`layerwise.measure.weights.tensors`) and predicted from the same units of the
layers before and after it; the first and the last layer have one neighbour. Rows are predicted in five groups, each by
a fit to the other four (cross-fitting), so the prediction of a row never rests on the row itself. An in-sample fit
would hand back much of the layer it was fitted to: for most matrices of a transformer there are as many predictors as
rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.ridge import best_share, fits
from layerwise.measure.weights.tensors import (
    StackTensors,
    TensorType,
    as_units,
    from_units,
    not_finite,
    stream_width,
    tensor_types,
)
from layerwise.measure.weights.weight_r2 import FEWEST_ROWS
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights

_GROUPS = 5


def predict_layer(stack: Stack, layer: int) -> dict[str, Tensor]:
    """The predicted weights of `layer` by parameter name, in the shapes and the dtype they are stored in.

    Only tensor types that all layers have in one shape are predicted; other parameters are not in the result. The same
    weights give the same prediction: nothing is drawn. Raises `MeasureError` for a layer that is not there, fewer than
    4 layers, layers of unlike shapes, and weights that are not finite.
    """
    if not 0 <= layer < stack.depth:
        raise MeasureError(
            f"a prediction of layer {layer} was asked for, but the model has layers 0 to {stack.depth - 1}"
        )
    tensors = StackTensors(stack)
    types = tensor_types(tensors, "prediction")
    width = stream_width(types)
    own = layer_weights(stack, layer)
    return {
        kind.name: _predicted(stack, layer, kind, width).to(own[kind.name].dtype).to(own[kind.name].device)
        for kind in types
        if as_units(own[kind.name], width).shape[0] >= FEWEST_ROWS
    }


def _predicted(stack: Stack, layer: int, kind: TensorType, width: int) -> Tensor:
    neighbours = [each for each in (layer - 1, layer + 1) if 0 <= each < stack.depth]
    x = torch.cat([_matrix(stack, each, kind, width) for each in neighbours], dim=1)
    y = _matrix(stack, layer, kind, width)
    # In a fixed random order, so that a group is not a run of neighbouring units such as one head.
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(len(y)))
    share = best_share(x[order], y[order])
    predicted = torch.empty_like(y)
    for group in order.tensor_split(_GROUPS):
        others = torch.ones(len(y), dtype=torch.bool)
        others[group] = False
        (fit,) = fits(x[others], y[others], (share,))
        predicted[group] = fit.predict(x[group])
    return from_units(predicted, kind.shape, width)


def _matrix(stack: Stack, layer: int, kind: TensorType, width: int) -> Tensor:
    stored = layer_weights(stack, layer)[kind.name]
    matrix = exact_on_cpu(as_units(stored, width))
    if not matrix.isfinite().all():
        raise not_finite(layer, kind.name)
    return matrix
