"""Frontier: what a model loses for the milliseconds that it saves, by every way of saving them."""
