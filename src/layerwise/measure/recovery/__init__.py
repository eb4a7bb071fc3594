"""Recovery of a damaged layer during fine-tuning, and stability of training."""
