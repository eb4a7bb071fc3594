"""Growth training: a model is trained in phases, each on the layers of a schedule (`layerwise.plan.schedule`)."""
