"""`layerwise train elc`."""
