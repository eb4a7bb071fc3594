"""Load models whose layers a plan can run, and run plans on them."""

from layerwise.stack.executors.capture import Capture
from layerwise.stack.load import load, weight_hash
from layerwise.stack.stack import ModelOrigin, Stack
from layerwise.stack.verify import Law, verify

__all__ = ["Capture", "Law", "ModelOrigin", "Stack", "load", "verify", "weight_hash"]
