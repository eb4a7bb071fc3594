"""Measurements: pure functions from a stack and batches to rows. Nothing here writes a file.

stats           estimates with intervals, tests, verdicts
interventions   plans, ablations, and perturbations, by what they do to the loss
weights         structure and predictability of weight tensors
activations     hidden states from layer to layer
gradients       what one backward pass says of every layer
language        evaluation text, losses, minimal pairs, benchmarks
recovery        damage, fine-tuning, and how fast the loss returns
cost            operations, seconds, bytes
contrasts       the comparisons that published claims are decided by
"""
