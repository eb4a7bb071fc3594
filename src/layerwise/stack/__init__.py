"""Models that can run plans: find the blocks, capture a batch, run any plan, and finish with the model's own head."""

from layerwise.stack.executors.capture import Capture
from layerwise.stack.load import load, weight_hash
from layerwise.stack.stack import ModelOrigin, Stack
from layerwise.stack.verify import Law, verify

__all__ = ["Capture", "Law", "ModelOrigin", "Stack", "load", "verify", "weight_hash"]
