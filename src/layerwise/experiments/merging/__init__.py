"""Merging: models made of the layers of several, compared with those models."""
