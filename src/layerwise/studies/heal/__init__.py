"""`layerwise heal`."""
