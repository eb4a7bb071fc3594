"""The names that rows are written with and read by: measures, metrics, arms and conditions, each in one place.

What writes a row and what reads it both import its names from here, so that no name is declared twice and none is
spelled in two ways. A name that one file alone uses stays in that file.
"""

from __future__ import annotations

# Every kind of run

ALL = "all"
"""The task that is the whole text."""

# Trainings: by `arm` and `seed`; the `amount` of a loss is its step

TRAINING = "training"
TRAIN_LOSS, VALIDATION_LOSS = "train_loss", "validation_loss"

# Robustness, of `arm` and `seed`: `condition` is the order in which the layers run. Where not all of them do: `amount`
# is how many are kept and `part` the rule that chose them; or `layer` is the one that is left out; or nodes are lost:
# `part` is the layout, `other` how many nodes there are, `amount` how many are lost, `layer` the first layer on the one
# that is. Rows without an arm are about the model and the examples.

ROBUSTNESS, ORDERS, IDENTITY, CONTRIBUTION, NODES = "robustness", "orders", "identity", "contribution", "nodes"
POSITION, BRANCHES, ATTENTION, WORTH, EMBEDDING = "position", "branches", "attention", "worth", "embedding"
"""The position of a layer is the column `other`; the `amount` of a point of an embedding is its example."""

SEQUENTIAL, RANDOM_ORDER = "sequential", "random"
BLOCKS, ROUND_ROBIN = "blocks", "round-robin"
BASELINE, CHANCE, UNIFORM_ATTENTION, SHUFFLED_POSITIONS = "baseline", "chance", "uniform", "shuffled"
SINGLE, SCATTERED = "single", "scattered"
"""Against what the loss of nodes is set: the same layers one by one, and as many anywhere."""

# Merging: `part` is what runs, of several models of one `arm`; `condition` the order, or for merged models whether
# their layers stand anywhere (`RANDOM_ORDER`) or at their own depth (`SEQUENTIAL`)

MERGING, MERGES = "merging", "merges"
MEMBERS, BEST_MEMBER, ENSEMBLE, MERGED = "members", "best member", "ensemble", "merged"
NODE_LOST, NODE_REPLACED = "node lost", "node replaced"

# Times of passes: of each `plan`, in a setting (`condition`: the phase, the batch and the context)

TIME = "time"
MILLISECONDS, RATIO = "ms", "ratio"

# Healing: `arm` is a way of training, or one of the models below

HEALING, HEALING_CONTRAST, HEALING_WINDOW, HEALING_RATE, HEALING_COST = (
    "healing", "healing_contrast", "healing_window", "healing_rate", "healing_cost",
)  # fmt: skip
UNTOUCHED, PRUNED, WHOLE, RANDOM, SKIP = "untouched", "pruned", "whole", "random", "skip-"
BEFORE, HEALED = "before", "healed"
"""Conditions: a model before it is trained, and after."""
