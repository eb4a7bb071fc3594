"""Code that is written into a folder, so that transformers runs it where layerwise is not installed."""
