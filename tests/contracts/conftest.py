"""Silence warnings about optional kernels."""

from collections.abc import Iterator

import pytest
import transformers


@pytest.fixture(autouse=True, scope="package")
def _quiet() -> Iterator[None]:
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(verbosity)
