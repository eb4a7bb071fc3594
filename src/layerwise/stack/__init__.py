"""A plan meets a model: find its blocks, capture a batch, run any plan, and let the model finish."""

from layerwise.stack.executors.capture import Capture
from layerwise.stack.load import load, weight_hash
from layerwise.stack.stack import ModelOrigin, Stack
from layerwise.stack.verify import Law, verify

__all__ = ["Capture", "Law", "ModelOrigin", "Stack", "load", "verify", "weight_hash"]
