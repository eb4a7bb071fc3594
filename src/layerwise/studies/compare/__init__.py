"""`layerwise compare`."""
