"""A plan meets a model: find its blocks, capture a batch, run any plan, and let the model finish."""

from layerwise.stack.load import load, weight_hash
from layerwise.stack.stack import Capture, Source, Stack

__all__ = ["Capture", "Source", "Stack", "load", "weight_hash"]
