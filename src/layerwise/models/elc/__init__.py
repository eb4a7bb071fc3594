"""LTG-BERT and ELC-BERT: a masked language model whose layers choose what they read."""
