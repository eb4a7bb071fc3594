"""Save a plan as a checkpoint, with layers of one or several models: streamed from file to file, or from memory."""

from layerwise.checkpoint.folder import Origin
from layerwise.checkpoint.save import save

__all__ = ["Origin", "save"]
