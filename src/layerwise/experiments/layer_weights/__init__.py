"""Learned layer weights of trained models: what each edge does, and which edges can be cut."""
