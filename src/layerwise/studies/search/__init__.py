"""`layerwise search`."""
