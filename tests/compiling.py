"""What tests need that compile: graphs are counted and run as they are, so that no C++ compiler is asked."""

from __future__ import annotations

import pytest

import other_kernel

COMPILES = [
    pytest.mark.skipif(other_kernel.ACTIVE, reason="torch.compile makes no graph of what a dispatch mode sees"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),  # torch asks for it and hides the answer
]
"""The marks of tests that compile blocks."""
