"""Centred kernel alignment: are two sets of features the same up to rotation and scale?

Cosine compares two hidden states token by token, in fixed coordinates. CKA asks instead whether two layers
place the *set* of tokens in the same way, whatever their coordinates:

    CKA(X, Y) = HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L))        K = X X^T, L = Y Y^T   (linear kernels)

(Kornblith et al. 2019, section 3). The plain estimate of HSIC is biased upwards: for fewer tokens than
features even independent noise comes out alike. Here each minibatch of tokens gives the unbiased estimate of
Song et al. (2012),

    HSIC_1(K, L) = (tr(K' L') + 1^T K' 1 1^T L' 1 / ((n-1)(n-2)) - 2 / (n-2) 1^T K' L' 1) / (n (n-3))

where K' is K with a diagonal of zeros, and the three terms of CKA are averaged over minibatches before they
are divided (Nguyen et al. 2021, arXiv 2010.15327, section 2.1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from layerwise.errors import MeasureError

FEWEST_TOKENS = 4
"""The unbiased estimate divides by n - 3."""


def unbiased_hsic(features: Tensor) -> Tensor:
    """HSIC_1 of every pair of layers on one minibatch: (layers, n, width) -> (layers, layers), linear
    kernels.

    Raises `MeasureError` for fewer than 4 tokens.
    """
    layers, n, _ = features.shape
    if n < FEWEST_TOKENS:
        raise MeasureError(f"unbiased HSIC was computed on {n} tokens; it needs at least {FEWEST_TOKENS}")
    kernels = features @ features.transpose(1, 2)
    kernels.diagonal(dim1=1, dim2=2).zero_()
    rows = kernels.sum(dim=2)
    totals = rows.sum(dim=1)
    flat = kernels.reshape(layers, n * n)
    together = flat @ flat.T
    apart = torch.outer(totals, totals) / ((n - 1) * (n - 2))
    across = rows @ rows.T * (2 / (n - 2))
    return (together + apart - across) / (n * (n - 3))


def alignment(hsic: Tensor) -> Tensor:
    """CKA of every pair from the averaged HSIC of every pair, (layers, layers); not-a-number where undefined.

    It is undefined for a layer whose own HSIC is not positive: features that do not vary from token to token.
    """
    scale = hsic.diagonal().sqrt()
    return hsic / torch.outer(scale, scale)
