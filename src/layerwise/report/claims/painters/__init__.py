"""The claims of "Transformer Layers as Painters" (Sun et al., arXiv 2407.09298)."""
