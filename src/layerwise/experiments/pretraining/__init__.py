"""Pretraining of masked language models with and without learned layer weights (`layerwise train elc`)."""
