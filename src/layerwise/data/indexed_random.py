"""Random numbers by index: those of index i are the same whoever draws them, after and beside whatever else.

They are the stream of Philox 4x64 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), which counts:
any place of it is reached without what lies before. One generator serves a whole batch, since making one takes longer
than drawing the numbers of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray

_BLOCK = 4
"""Numbers that Philox makes of one value of its counter."""


def uniforms(key: tuple[int, ...], indices: Sequence[int], count: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) of shape (indices, count): row r is decided by (key, indices[r], count) alone.

    Indices, at least 0, that follow each other are drawn together.

    >>> one, two = uniforms((7,), [3, 4], 5)
    >>> bool((uniforms((7,), [4], 5)[0] == two).all())
    True
    """
    blocks = -(-count // _BLOCK)
    drawn = np.empty((len(indices), blocks * _BLOCK))
    philox = Philox(SeedSequence(key))
    random, at = Generator(philox), 0
    breaks = [row for row, (one, other) in enumerate(pairwise(indices), start=1) if other != one + 1]
    for start, end in pairwise([0, *breaks, len(indices)]):
        first = indices[start] * blocks
        philox.advance((first - at) % 2**256)
        random.random(out=drawn[start:end])
        at = first + (end - start) * blocks
    return drawn[:, :count]
