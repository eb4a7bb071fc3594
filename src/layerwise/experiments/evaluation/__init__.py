"""The evaluation of language models: minimal pairs as the models are, and tasks that they are fine-tuned on."""
