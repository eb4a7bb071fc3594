"""Sharding by accelerate on processors, for tests: it shards on accelerators only, and elsewhere silently does not.

What decides is the kind of the process group that accelerate has noted; here that of processors is called that of GPUs.
Everything else, the sharding, its messages over gloo, and the checkpoints, is what runs on accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from accelerate import PartialState
from accelerate.state import GradientState
from accelerate.utils import DistributedType


@contextmanager
def sharding_on_processors() -> Iterator[None]:
    """Within the context, and for what is made in it, accelerate shards over processes without an accelerator."""
    own = PartialState.__init__

    def noting(self: PartialState, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        if self.distributed_type is DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    # What a training left that was stopped between two passes of this process; a new process has not.
    GradientState()._set_sync_gradients(True)
    with patch.object(PartialState, "__init__", noting):
        yield
