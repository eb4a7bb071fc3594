"""Trust: whether what a node answers is believed."""
