"""Recovery: a layer is damaged, the model is fine-tuned, and its loss is followed."""
