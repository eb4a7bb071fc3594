"""`layerwise time`."""
