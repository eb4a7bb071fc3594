"""The default of `--batch-tokens`: 4,096 on a CPU, up to 65,536 on an accelerator, within 1/4 of free memory.

It decides the last bits of losses, so it is in the manifest, and a resumed run keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from layerwise.errors import RunError
from layerwise.measure.language.evaluation_data import BATCH_TOKENS
from layerwise.measure.language.loss import CHUNK
from layerwise.plan import Plan
from layerwise.results import Manifest
from layerwise.results.run import MANIFEST, is_run
from layerwise.stack import Stack
from layerwise.stack.placement import batch_size_within, free_memory

ACCELERATED = 65_536

_IN_A_LAYER = 16

_LOGIT_BYTES = 12


def batch_tokens(stack: Stack, plans: Sequence[Plan], length: int) -> int:
    most = BATCH_TOKENS if stack.device.type == "cpu" else ACCELERATED
    return batch_size_within(
        free_memory(stack.device), bytes_of_token(stack, plans, length), most=most, fixed=_LOGIT_BYTES * CHUNK
    )


def bytes_of_token(stack: Stack, plans: Sequence[Plan], length: int) -> float:
    """What one token takes: a state for each step of the longest plan, since the graph of all plans is gone through
    depth first; and in a layer its states, the inner ones of the perceptron, and its row of every head's attention."""
    config = stack.text_config
    width = int(config.hidden_size)
    inner = getattr(config, "intermediate_size", None) or 4 * width
    heads = getattr(config, "num_attention_heads", None) or 1
    held = max(len(plan.steps()) for plan in plans) + 1
    numbers = width * (held + _IN_A_LAYER) + 4 * int(inner) + 2 * int(heads) * length
    return float(numbers * stack.dtype.itemsize)


def recorded_batch_tokens(folder: Path, manifest: Manifest) -> int | None:
    """The number that the run in `folder` was begun with; `None` where there is none, or it is another run."""
    if not is_run(folder):
        return None
    try:
        recorded = Manifest.from_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RunError):
        return None  # what is wrong with it is said when it is resumed
    number = recorded.numerics.get("batch_tokens", "")
    return int(number) if recorded.measured() == manifest.measured() and number.isdigit() else None
