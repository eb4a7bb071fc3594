"""`layerwise diagnose`."""
