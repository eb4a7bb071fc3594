"""Count compiled graphs and run them eagerly, so that no C++ compiler is needed."""

import pytest

import other_kernel

COMPILES = [
    pytest.mark.skipif(other_kernel.ACTIVE, reason="torch.compile makes no graph of what a dispatch mode sees"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),  # torch asks for it and hides the answer
]
