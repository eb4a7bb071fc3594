"""Random numbers by index: one stream, wherever it is entered."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import Generator, Philox, SeedSequence

from layerwise.data.indexed_random import uniforms


@pytest.mark.parametrize("count", [1, 4, 6])
def test_rows_are_places_of_one_stream(count: int) -> None:
    blocks = -(-count // 4) * 4
    stream = Generator(Philox(SeedSequence((3, 1)))).random((40, blocks))[:, :count]
    for indices in ([0], [39], [5, 6, 7], [7, 8, 2, 3, 3, 30], list(range(40))):
        assert (uniforms((3, 1), indices, count) == stream[indices]).all()


def test_the_key_decides() -> None:
    one, other = (uniforms((3, key), [0], 64) for key in (1, 2))
    assert not np.isin(one, other).any()
