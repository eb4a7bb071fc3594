"""One thread and no warnings about optional kernels: the zoo is many small models, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import transformers


@pytest.fixture(autouse=True, scope="package")
def _quiet_and_single_threaded() -> Iterator[None]:
    threads, verbosity = torch.get_num_threads(), transformers.logging.get_verbosity()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    yield
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity(verbosity)
