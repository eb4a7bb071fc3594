"""`layerwise evaluate`."""
