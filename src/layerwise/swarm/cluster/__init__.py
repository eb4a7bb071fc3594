"""Run swarms and sweeps on a Ray cluster. No other package of layerwise imports Ray."""
