"""The diagnosis: which layers of a model matter, with an interval and a null beside every score."""
