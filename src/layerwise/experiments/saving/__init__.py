"""Saving: a plan, or layers of several models, as an ordinary checkpoint."""
