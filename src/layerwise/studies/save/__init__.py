"""`layerwise save` and `layerwise save convert`."""
