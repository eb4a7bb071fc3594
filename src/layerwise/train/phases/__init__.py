"""Growth training: train a model in phases, which use different layers (`layerwise.plan.schedule`)."""
