"""Healing: a model under a plan is trained to make up for the layers that the plan leaves out.

options    the variant of a recipe: which weights learn, and from what
learning   which weights learn, the model as it was before they did, and a healed model opened again
losses     divergence from the whole model's predictions, and distance of hidden states
trainer    the Trainer that puts them together
"""
