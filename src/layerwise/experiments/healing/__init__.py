"""`layerwise heal`: a model under a plan trained to make up for the layers that are left out."""
