"""`layerwise save`."""
