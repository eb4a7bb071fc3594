"""A pass recorded as a CUDA graph and replayed: its kernels alone, without Python between them.

One token of a small model keeps a processor busier than its accelerator: what is timed then is how fast Python hands
out kernels, and not how fast they are. A graph of a pass hands them out at once. Recording needs tensors that stay
where they are, so a token stands behind a cache of fixed length (`static_cache`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import StaticCache

from layerwise.errors import MeasureError

WARM_UP = 3
"""Passes on a side stream before the recording, as torch's documentation of CUDA graphs asks for."""


class CapturedPass:
    """`work`, recorded once; a call replays it. Raises `MeasureError` for work that no graph can hold."""

    def __init__(self, work: Callable[[], object]) -> None:
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph: Any = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self.graph):
                work()
        except RuntimeError as error:
            raise MeasureError(
                f"a pass of this model cannot be recorded as a CUDA graph ({str(error).splitlines()[0]}): time it "
                "without, by --no-graphs"
            ) from error

    def __call__(self) -> None:
        """Replay what was recorded."""
        self.graph.replay()


def static_cache(model: Any, tokens: int) -> StaticCache:
    """A cache whose slots hold `tokens` tokens at most, and stay where they are."""
    return StaticCache(config=model.config, max_cache_len=tokens)
