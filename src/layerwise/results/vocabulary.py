"""Names of measures, metrics, variants and conditions in rows that are used by several files."""

from __future__ import annotations

from typing import Literal

# Resampling units, over which intervals are computed

MIN_UNITS = 8
"""Minimum number of documents or windows for an interval. With fewer, a sign-flip p-value cannot be below 1/64."""


def resampling_unit(documents: int) -> Literal["document", "window"]:
    """Return the unit that is resampled: documents, or windows if there are fewer than 8 documents.

    >>> resampling_unit(8), resampling_unit(1)
    ('document', 'window')
    """
    return "document" if documents >= MIN_UNITS else "window"


# Every kind of run

ALL, ORIGINAL = "all", "original"
"""The whole text or benchmark, and the original model."""
EQUAL_NATS = 0.005
"""Losses that differ by less than this (in nats/token) count as equal. This is 0.5 % of the perplexity."""

# Null baselines, in the column `against`

NO_EFFECT, RANDOM_INIT, SHUFFLED, SHUFFLED_LAYERS, PERMUTED_UNITS, INDEPENDENT = (
    "no_effect",
    "random_init",
    "shuffled",
    "shuffled_layers",
    "permuted_units",
    "independent",
)
SAME_NORM_RANDOM, P_OVER_N, UNDAMAGED = "same_norm_random", "p_over_n", "undamaged"

# Contrasts that test a `claim`. If two groups of tasks are compared, they are in the columns `task` and `against`.

CONTRAST = "contrast"
STRATEGIES, BENCHMARK_STRATEGIES = "strategies", "benchmark_strategies"
"""Claims about strategies on text and on benchmarks, such as their means over random draws."""
STEP = "step"
RELATIVE, SLOPE, EXCESS, LESS, LOG_RATIO = "relative", "slope", "excess", "less", "log_ratio"
BITS, STANDS_OUT = "bits", "stands_out"
"""Claims about quantized layers (see `layerwise.measure.contrasts.layers`)."""

# A diagnosis

ABLATION, VERDICT, RACING, DELTAS, PREDICTABILITY, RECOVERY, MANIPULATION, PROXIES, AGREEMENT = DIAGNOSED = (
    "ablation",
    "verdict",
    "racing",
    "deltas",
    "predictability",
    "recovery",
    "manipulation",
    "proxies",
    "agreement",
)
"""Measures of a diagnosis, in the order of the report."""
DECISIONS = ("matters", "no_effect", "harmful", "inconclusive")
"""Verdicts on a layer."""
MARGIN = "margin"
"""Metric whose value is the smallest effect that counts."""
SKIPPING, DELTA_NLL, GATE = "skip", "delta_nll", "gate"

# Training runs, by `variant` and `seed`

TRAINING, TUNING = "training", "tuning"
TRAIN_LOSS, VALIDATION_LOSS = "train_loss", "validation_loss"

# Robustness (rows without a variant describe the model and the examples)

ROBUSTNESS, ORDERS, IDENTITY, CONTRIBUTION, NODES = "robustness", "orders", "identity", "contribution", "nodes"
POSITION, BRANCHES, ATTENTION, POSITION_IMPORTANCE, OUTPUT_LAYOUT = (
    "position",
    "branches",
    "attention",
    "position_importance",
    "embedding",
)

SEQUENTIAL, RANDOM_ORDER = "sequential", "random"
BLOCKS, ROUND_ROBIN = "blocks", "round-robin"
BASELINE, UNIFORM_ATTENTION = "baseline", "uniform"
SINGLE, SCATTERED = "single", "scattered"
"""Baselines for failed nodes: skipping the same layers one at a time, and skipping as many random layers."""

# Merging models of one `variant`: each layer is at a random depth (`RANDOM_ORDER`) or where it was (`SEQUENTIAL`)

MERGING, MERGES = "merging", "merges"
MEMBERS, BEST_MEMBER, ENSEMBLE, MERGED = "members", "best member", "ensemble", "merged"
NODE_FAILED, NODE_REPLACED = "node failed", "node replaced"

# Times of forward passes of each `plan` in a `condition` (phase, batch size and context length)

TIME = "time"
MILLISECONDS, RATIO = "ms", "ratio"

# Healing: `variant` is a training method, or one of the models below; the `task` of a `HEALING_TASK` is a benchmark

HEALING, HEALING_CONTRAST, HEALING_WINDOW, HEALING_TASK, HEALING_RATE, HEALING_COST = (
    "healing",
    "healing_contrast",
    "healing_window",
    "healing_task",
    "healing_rate",
    "healing_cost",
)
PRUNED, IDENTITY_CONTROL, RANDOM, SKIP = "pruned", "identity", "random", "skip-"
BEFORE, HEALED = "before", "healed"
"""Conditions: before and after training."""

# A sweep

EFFECT, SIMILARITY, BENCHMARK, STATES, ZONES = "effect", "similarity", "benchmark", "plan_states", "zones"
PROBING = "probing"

DELTA, NLL, EXACT = "delta_nll", "nll", "exact_match"
LOOPED, GAINED, LOOP_COUNT = "looped", "gain_sweep", "loop_count"
"""Families of plans that vary the number of loops or the gain of parallel layers, and the claim about loop counts."""

# A search: `task` is a part of the text, `variant` the control with which the selected plan is compared

SEARCH, SEARCH_ROUND, LATENCY = "search", "search_round", "latency"
CHOSEN, COST, FRONT, CONTROL_PLAN, BEST_CHANGE = "chosen", "cost", "front", "control_plan", "best_change"
AGAIN, GAP, ABOVE_CHOSEN, BETTER = "again", "gap", "above_chosen", "better"
REPORT, SECOND = "report", "second"
REST = "rest"

# Pretrained models, and what happens when they are fine-tuned or lose edges: `variant` is a wiring or a model

MASKED_LM, ALPHA, SEED_AGREEMENT, UNIFORMITY, STABILITY = (
    "masked_lm",
    "alpha",
    "seed_agreement",
    "uniformity",
    "stability",
)
EDGES = "edges"
"""Measure of results on minimal pairs without the layer weights that the column `condition` names."""

OUTPUT = "output"
"""The part of the model that reads the output of the layers."""

STUDY, ATTRIBUTION, INITIAL_BIAS, DATA_SHARE = "study", "attribution", "initial_bias", "data_share"
CONVERGENCE, TUNING_CONVERGENCE, LEARNING_CURVE, BABYLM = (
    "convergence",
    "tuning_convergence",
    "learning_curve",
    "babylm",
)
STEPS, SECONDS, TOKENS = "steps", "seconds", "tokens"
"""Units of costs."""

PAIRS, GLUE, MSGS, OUR_MSGS = "pairs", "glue", "msgs", "msgs-ours"
"""Measures of suites: minimal pairs, and tasks for fine-tuning."""

FINE_TUNED = (GLUE, MSGS, OUR_MSGS)
_LINGUISTIC = ("main_verb", "control_raising", "syntactic_category")
_SURFACE = ("lexical_content_the", "relative_position", "length")
CONTROLS = tuple(f"control {feature}" for feature in (*_LINGUISTIC, *_SURFACE))
AMBIGUOUS = tuple(f"ambiguous {linguistic}_{surface}" for linguistic in _LINGUISTIC for surface in _SURFACE)
"""Tasks of `OUR_MSGS`: controls with one feature, and tasks with two features that agree in the training data."""

PHENOMENON, PARADIGM = "phenomenon", "paradigm"

NORMALIZED = "normalized"
"""Condition of fine-tuned scores that are rescaled from chance (0) to the original model (1)."""

CHANCE, SHUFFLED = "chance", "shuffled"
"""Baselines: guessing, and permuted sources or labels."""

BEYOND_START, BEYOND_DISTANCE = "beyond the start", "beyond distance"
"""Conditions of `SEED_AGREEMENT`: what the initial weights, or the distance of layers, explain is removed."""

BACKBONE, LAYER_WEIGHTS = "ltg", "elc"
"""Variants without layer weights (`ltg`), and with the layer weights of the paper (`elc`)."""

# Training in phases: `variant` is a schedule

SCHEDULE, ACCOUNTING, HELD_OUT, RATES, NULL, GROWTH, IMPORTANCE = (
    "schedule",
    "accounting",
    "held_out",
    "rates",
    "null",
    "growth",
    "importance",
)
SHARE, PREDICTED, MEASURED = "share", "predicted", "measured"
EMBEDDING_PART, HEAD_PART = "embedding", "head"
BIGRAMS, UNIGRAMS = "bigrams", "unigrams"
"""Baselines that use only the token statistics of the training text."""

UNIFORM_TRAINING = "uniform"
LEARNING_RATE, WARMUP = "learning_rate", "warmup"

FLOPS, BUDGET = "flops", "budget"
"""Units of costs. The budget is the cost of uniform training for all steps."""

DIFFERENCE, AT = "difference", "at"
SAVING, SAVING_AT_MOST, SAVING_AT_LEAST = "saving", "saving_at_most", "saving_at_least"
LOSS_RATIO, TIME_SAVED = "loss_ratio", "time_saved"
NEVER, SOONER = "never", "sooner"

# Comparisons of runs: `variant` is the model of a run

MODEL, CURVE, SCORE_CURVE, LAYER = "model", "curve", "score_curve", "layer"
COINCIDENCE = "coincidence"
"""Maximum difference between the curves of `variant` and `against`, and whether they coincide."""
CLAIM, EVERY, ANY = "claim", "every model", "any model"
"""Verdicts on a claim for several models, corrected for multiple tests: 1 if it holds, -1 if it does not, else 0."""

# Paired lm-eval evaluations: scores of `variant`, differences from the baseline (`against`), and verdicts

EVALUATED, PAIRED, TOLERANCE, NEEDED, EXCEEDED, KEPT = (
    "evaluated",
    "paired",
    "tolerance",
    "needed",
    "exceeded",
    "kept",
)
WORSE, ALIKE, INCONCLUSIVE = "worse", "alike", "inconclusive"
PAIRED_DECISIONS = (WORSE, BETTER, ALIKE, INCONCLUSIVE)
