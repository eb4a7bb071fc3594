"""The processes of a training that torchrun may have started, as their environment tells."""

from __future__ import annotations

import os


def is_first_process() -> bool:
    """Whether this process writes rows and speaks."""
    return int(os.environ.get("RANK", "0")) == 0


def is_alone() -> bool:
    """Whether this is the only process."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1
