"""Measurements: pure functions from a stack and batches to rows. Nothing here writes a file.

stats           estimates, tests, verdicts                interventions   loss changes of plans and changed layers
weights         structure of weight tensors               activations     hidden states from layer to layer
gradients       results of one backward pass              language        evaluation text, pairs, benchmarks
recovery        damage and fine-tuning                    cost            operations, seconds, bytes
contrasts       comparisons that decide published claims
"""
