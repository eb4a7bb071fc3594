"""`layerwise verify`."""
