"""`layerwise robustness`."""
