"""Train the bundled demo models: `python -m tools.demo.language_model` and `tools.demo.vision_model`."""
