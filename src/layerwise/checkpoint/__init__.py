"""A plan as an ordinary checkpoint, of one model or of layers of several, proved before it gets its name."""

from layerwise.checkpoint.write import Origin, save

__all__ = ["Origin", "save"]
