"""A sweep: many plans on one model and text, with intervals."""
