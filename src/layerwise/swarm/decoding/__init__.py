"""Text from a model whose layers are elsewhere."""
