"""`layerwise play`."""
