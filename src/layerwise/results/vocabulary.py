"""The names that rows are written with and read by: measures, metrics, arms and conditions, each in one place.

What writes a row and what reads it both import its names from here, so that no name is declared twice and none is
spelled in two ways. A name that one file alone uses stays in that file.
"""

from __future__ import annotations

# Every kind of run

ALL = "all"
"""The task that is the whole text."""

# Nulls: what a value is compared with, in the column `against`

NO_EFFECT, RANDOM_TWIN, SHUFFLED, SHUFFLED_LAYERS, PERMUTED_UNITS, INDEPENDENT = (
    "no_effect", "random_twin", "shuffled", "shuffled_layers", "permuted_units", "independent",
)  # fmt: skip
SAME_NORM_RANDOM, P_OVER_N, TWIN, UNIFORM_GUESS = "same_norm_random", "p_over_n", "twin", "uniform"

# A diagnosis: rows are of a `layer`; `part` is a half of it, or a type of its weights (empty: all types together)

ABLATION, VERDICT, RACING, DELTAS, PREDICTABILITY, RECOVERY, MANIPULATION, STRUCTURE, PROXIES, AGREEMENT, PRUNING = (
    "ablation", "verdict", "racing", "deltas", "predictability", "recovery", "manipulation", "structure", "proxies",
    "agreement", "pruning",
)  # fmt: skip
DIAGNOSED = (
    ABLATION, VERDICT, RACING, DELTAS, PREDICTABILITY, RECOVERY, MANIPULATION, STRUCTURE, PROXIES, AGREEMENT, PRUNING,
)  # fmt: skip
"""The measures of a diagnosis, in the order of the report."""
DECISIONS = ("matters", "no_effect", "harmful", "unresolved")
"""The metrics of verdicts and of a race: what was concluded about a layer."""
MARGIN = "margin"
"""The metric of the row of verdicts that holds the smallest effect that counts."""
SKIPPING, DELTA_NLL, GATE, LOGIT_LENS = "skip", "delta_nll", "gate", "logit_lens"
RANDOM_SCORE = "random_score"
"""What a ranking is compared with, in `against`, where the band of random rankings is meant."""
DEEPEST_KEEP_LAST = "deepest_keep_last"
"""The arm of pruning that drops the deepest layers but the last; that of random sets is `RANDOM`."""

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
