"""Learned layer weights and their controls at equal steps and equal seconds (`layerwise train elc-study`)."""
