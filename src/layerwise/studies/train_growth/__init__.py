"""`layerwise train growth`."""
