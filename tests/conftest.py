"""Shared tiny models. torch is imported lazily: pytest-xdist's controller reads this file too."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import processor_time
from tier import load_profile

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch._dynamo.testing import CompileCounterWithBackend
    from transformers import GraniteForCausalLM, LlamaForCausalLM

load_profile()

# The folders whose tests compute nothing with torch: the rooms of these names may not import it (laws/).
WITHOUT_NUMBERS = ("plan", "page", "results", "schedule")

NIGHTLY_SECONDS = 3600
"""Timeout of nightly tests."""


def pytest_configure(config: pytest.Config) -> None:
    """Set up `other_kernel` and `processor_time`, and share one tokenization cache between processes."""
    # Without a handler Python would write warnings to the error stream, where tests look for what a command writes.
    logging.getLogger().addHandler(logging.NullHandler())
    if not hasattr(config, "workerinput"):
        kept = TemporaryDirectory(prefix="layerwise-tests-", ignore_cleanup_errors=True)
        os.environ["LAYERWISE_CACHE"] = kept.name
        config.add_cleanup(kept.cleanup)
        config.pluginmanager.register(processor_time.Table())
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # the tests run in other processes
    import other_kernel
    from threads import use_threads

    use_threads()
    if other_kernel.ACTIVE:
        other_kernel.OtherKernel().__enter__()
    config.pluginmanager.register(processor_time.Stopwatch())
    gc.disable()  # what is collected stays: looking for garbage among it takes seconds


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests outside `WITHOUT_NUMBERS` as `numbers` and nightly ones as slow; start the longest files first."""
    for item in items:
        if item.get_closest_marker("nightly") is not None:
            item.add_marker("slow")
            item.add_marker(pytest.mark.timeout(NIGHTLY_SECONDS))
        if item.path.relative_to(Path(__file__).parent).parts[0] not in WITHOUT_NUMBERS:
            item.add_marker("numbers")
    processor_time.sort_longest_first(items)


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    if fixturedef.scope != "function":
        _seed(f"{request.node.nodeid} {fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _seed(item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _seed(item.nodeid)


def _seed(name: str) -> None:
    import numpy as np
    import torch

    seed = zlib.crc32(name.encode())
    random.seed(seed)
    np.random.seed(seed)
    # `torch.manual_seed` keeps a formatted stack for each kind of device that is not there, which takes milliseconds.
    (torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed)(seed)


@pytest.fixture(autouse=True)
def _threads_as_asked() -> None:
    from threads import use_threads

    use_threads()


@pytest.fixture
def quiet_transformers() -> Iterator[None]:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    yield
    logging.enable_progress_bar()
    logging.set_verbosity_warning()


TINY: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def tiny_llama(depth: int = 6, vocabulary: int = 97, seed: int = 0) -> LlamaForCausalLM:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=vocabulary, num_hidden_layers=depth, **TINY)
    return LlamaForCausalLM(config).eval()


def tiny_granite(depth: int) -> GraniteForCausalLM:
    import torch
    from transformers import GraniteConfig, GraniteForCausalLM

    torch.manual_seed(0)
    config = GraniteConfig(vocab_size=97, num_hidden_layers=depth, residual_multiplier=0.1, **TINY)
    return GraniteForCausalLM(config).eval()


@pytest.fixture
def llama() -> LlamaForCausalLM:
    return tiny_llama()


@pytest.fixture
def ids() -> torch.Tensor:
    import torch

    return torch.randint(3, 97, (2, 11), generator=torch.Generator().manual_seed(1))


class Flat:
    def __init__(self, **options: Any) -> None:
        assert options["n_neighbors"] > 0

    def fit_transform(self, states: NDArray[np.float64]) -> NDArray[np.float64]:
        return states[:, :2]


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Flat, __spec__=SimpleNamespace()))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounterWithBackend]:
    import torch
    from torch._dynamo.testing import CompileCounterWithBackend

    from layerwise.stack import compilation

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    monkeypatch.setattr(compilation, "BACKEND", counter)
    yield counter
    torch._dynamo.reset()
