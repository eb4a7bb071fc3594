"""LTG-BERT and ELC-BERT, a masked language model whose layers read a learned mixture of earlier states."""
