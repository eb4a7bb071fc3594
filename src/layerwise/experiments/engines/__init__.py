"""The engines of experiments: units of work that are kept, resumed and counted."""
