"""Self-speculation: a plan of a model drafts tokens, and the model itself verifies several of them in one pass."""

from layerwise.stack.speculation.layer_passes import LayerPasses, expected_bound
from layerwise.stack.speculation.speculation import Speculation, speculative

__all__ = ["LayerPasses", "Speculation", "expected_bound", "speculative"]
