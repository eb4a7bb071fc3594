"""Settings that measurements share: tokens that run together, the range of seeds, counts of at least one. No torch."""

from __future__ import annotations

from layerwise.errors import MeasureError

# Tokens that run together by default: enough to keep a CPU busy, little enough for a laptop's memory.
BATCH_TOKENS = 4096


SEEDS = 2**32
"""Seeds lie below this: what numpy draws by takes no larger one."""


def check_seed(seed: int) -> None:
    """Raise `MeasureError` for a seed that no generator takes."""
    if not 0 <= seed < SEEDS:
        raise MeasureError(f"a seed is a whole number from 0 to {SEEDS - 1}, and {seed} was asked for")


def check_counts(**counts: int | None) -> None:
    """Raise `MeasureError` for a count below 1."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise MeasureError(f"{name} is {count}; write a number of 1 or more")
