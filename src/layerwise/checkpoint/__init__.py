"""Save plans as checkpoints, of one model or of layers from several: streamed from file to file, or from memory."""

from layerwise.checkpoint.folder import Origin
from layerwise.checkpoint.save import save

__all__ = ["Origin", "save"]
