"""`layerwise sweep`."""
