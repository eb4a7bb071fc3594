"""`layerwise serve`."""
