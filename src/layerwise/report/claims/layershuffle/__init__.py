"""The claims of the LayerShuffle paper (Freiberger et al. 2024)."""
