"""Training in phases, each on the layers that a schedule names, beside uniform training (`layerwise train growth`)."""
