"""The names with which rows are written and read: measures, metrics, arms and conditions, each declared once.

Names that only one file uses stay in that file.
"""

from __future__ import annotations

from typing import Literal

# Units of resampling: what an interval is over

FEWEST_UNITS = 8
"""Below this an interval over units is not honest: no p-value from sign flips could be below 1 / 64."""


def resampling_unit(documents: int) -> Literal["document", "window"]:
    """What is resampled for a task of so many documents: windows if there are fewer than 8 documents.

    >>> resampling_unit(8), resampling_unit(1)
    ('document', 'window')
    """
    return "document" if documents >= FEWEST_UNITS else "window"


# Every kind of run. Rows of measure `run` are of a `part` of it: its model, or the verb's own work.

ALL = "all"
EQUAL_NATS = 0.005
"""Margin in nats/token within which two losses are equal: half a percent of perplexity."""

# Nulls: what a value is compared with, in the column `against`

NO_EFFECT, RANDOM_TWIN, SHUFFLED, SHUFFLED_LAYERS, PERMUTED_UNITS, INDEPENDENT = (
    "no_effect",
    "random_twin",
    "shuffled",
    "shuffled_layers",
    "permuted_units",
    "independent",
)
SAME_NORM_RANDOM, P_OVER_N, TWIN = "same_norm_random", "p_over_n", "twin"

# Contrasts: of the `claim` that they decide. `condition` is one of several strategies, `against` a milder
# one beside it, `amount` a number of layers. Of two kinds of tasks one is the `task`, the other what it is `against`.

CONTRAST = "contrast"
STRATEGIES, BENCHMARK_STRATEGIES = "strategies", "benchmark_strategies"
"""The claims of the contrasts that compare strategies: means over draws, steps of the ranking, tasks."""
STEP = "step"
RELATIVE, SLOPE, EXCESS, LESS, LOG_RATIO = "relative", "slope", "excess", "less", "log_ratio"
BITS, STANDS_OUT = "bits", "stands_out"
"""The contrasts of layers at a type (`layerwise.measure.contrasts.bits`)."""

# A diagnosis: rows are of a `layer`; `part` is a half of it, or a type of its weights (empty: all types together)

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
"""The measures of a diagnosis, in the order of the report."""
DECISIONS = ("matters", "no_effect", "harmful", "unresolved")
"""The metrics of verdicts and of a race: what was concluded about a layer."""
MARGIN = "margin"
"""The metric of the row of verdicts that holds the smallest effect that counts."""
SKIPPING, DELTA_NLL, GATE = "skip", "delta_nll", "gate"

# Trainings: by `arm` and `seed`; the `amount` of a loss is its step

TRAINING, TUNING = "training", "tuning"
"""Of a tuning the `amount` is the learning rate, and `other` the examples in a step."""
TRAIN_LOSS, VALIDATION_LOSS = "train_loss", "validation_loss"

# Robustness, of `arm` and `seed`: `condition` is the order in which the layers run. Where not all of them do: `amount`
# is how many are kept and `part` the rule that chose them; or `layer` is the one that is left out; or nodes are lost:
# `part` is the layout, `other` how many nodes there are, `amount` how many are lost, `layer` the first layer on the one
# that is. Rows without an arm are about the model and the examples.

ROBUSTNESS, ORDERS, IDENTITY, CONTRIBUTION, NODES = "robustness", "orders", "identity", "contribution", "nodes"
POSITION, BRANCHES, ATTENTION, WORTH, OUTPUT_LAYOUT = "position", "branches", "attention", "worth", "embedding"
"""The position of a layer is the column `other`; the `amount` of a point of a layout is its example."""

SEQUENTIAL, RANDOM_ORDER = "sequential", "random"
BLOCKS, ROUND_ROBIN = "blocks", "round-robin"
BASELINE, UNIFORM_ATTENTION = "baseline", "uniform"
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

# Healing: `arm` is a way of training, or one of the models below; the `task` of a `HEALING_TASK` is a benchmark

HEALING, HEALING_CONTRAST, HEALING_WINDOW, HEALING_TASK, HEALING_RATE, HEALING_COST = (
    "healing",
    "healing_contrast",
    "healing_window",
    "healing_task",
    "healing_rate",
    "healing_cost",
)
UNTOUCHED, PRUNED, WHOLE, RANDOM, SKIP = "untouched", "pruned", "whole", "random", "skip-"
BEFORE, HEALED = "before", "healed"
"""Conditions: a model before it is trained, and after."""

# A sweep: effects of each `plan` by `task`; similarities of the hidden states `layer` and `other`, of which 0 is the
# state before the first layer; a zone of the depth begins at the state `layer`; benchmarks under each `plan`

EFFECT, SIMILARITY, BENCHMARK, STATES, ZONES = "effect", "similarity", "benchmark", "plan_states", "zones"
PROBING = "probing"
"""Of a probe of hidden states the `task` is the feature, and the `part` its side: surface or linguistic."""
OF_STATES = (SIMILARITY, STATES, ZONES, PROBING)
"""The measures whose `layer` is the number of a hidden state."""

DELTA, NLL, EXACT = "delta_nll", "nll", "exact_match"
LOOPED, GAINED, LOOP_COUNT = "looped", "gain_sweep", "loop_count"
"""The families of parallel layers whose strategies are numbers: of loops, and of gains in one pass."""

# A search: `task` is a part of the text, `condition` a unit of prices, `arm` what stands beside the chosen plan

SEARCH, SEARCH_ROUND, LATENCY = "search", "search_round", "latency"
CHOSEN, PRICE, FRONT, ARM, BEST_CHANGE = "chosen", "price", "front", "arm", "best_change"
AGAIN, GAP, ABOVE_CHOSEN, BETTER = "again", "gap", "above_chosen", "better"
REPORT, SECOND = "report", "second"
REST = "rest"

# Models that were pre-trained, evaluated, fine-tuned and cut: `arm` is a wiring or a model, `seed` one training of it

MASKED_LM, ALPHA, SEED_AGREEMENT, UNIFORMITY, STABILITY = (
    "masked_lm",
    "alpha",
    "seed_agreement",
    "uniformity",
    "stability",
)
EDGES, ORIGINAL = "edges", "original"
"""Minimal pairs without edges, by the suite (`part`) and the edges removed (`condition`), and the model as trained."""

OUTPUT, EMBEDDING = "output", 0
"""Edges: `layer` is the reader, `other` the source (0 is the embedding, n + 1 layer n's output). The model's output as
reader has the `part` `OUTPUT` and no layer."""

STUDY, ATTRIBUTION, INITIAL_BIAS, DATA_SHARE = "study", "attribution", "initial_bias", "data_share"
CONVERGENCE, TUNING_CONVERGENCE, LEARNING_CURVE, BABYLM = (
    "convergence",
    "tuning_convergence",
    "learning_curve",
    "babylm",
)
STEPS, SECONDS, TOKENS = "steps", "seconds", "tokens"
"""Conditions: which cost was counted, and what two arms had alike when they were compared."""

PAIRS, GLUE, MSGS, OUR_MSGS = "pairs", "glue", "msgs", "msgs-ours"
"""Suites, each a measure: minimal pairs (also others, and files), and fine-tuned tasks.

Of a fine-tuned task `seed` is that of the model, and `other` that of its fine-tuning."""

FINE_TUNED = (GLUE, MSGS, OUR_MSGS)
_LINGUISTIC = ("main_verb", "control_raising", "syntactic_category")
_SURFACE = ("lexical_content_the", "relative_position", "length")
CONTROLS = tuple(f"control {feature}" for feature in (*_LINGUISTIC, *_SURFACE))
AMBIGUOUS = tuple(f"ambiguous {linguistic}_{surface}" for linguistic in _LINGUISTIC for surface in _SURFACE)
"""The tasks of `OUR_MSGS`: of one feature, and of two that agree in training; a test compares them with the suite."""

PHENOMENON, PARADIGM = "phenomenon", "paradigm"
"""Conditions of minimal pairs: what the task is; over all of them there is none."""

NORMALISED = "normalised"
"""The condition of a score of a fine-tuned task on the scale from chance, 0, to the model as trained, 1."""

CHANCE, SHUFFLED = "chance", "shuffled"
"""What values are against: guessing, and permuted sources or labels."""

BEYOND_START, BEYOND_DISTANCE = "beyond the start", "beyond distance"
"""Conditions of the agreement of seeds: the start that they share, or being neighbours, was taken off."""

BACKBONE, LAYER_WEIGHTS = "ltg", "elc"
"""The arm without layer weights, and that with the paper's."""

# Trainings in phases: `arm` is a schedule, `condition` one of its phases and `amount` the step that it ends before

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
TOKEN_PAIRS, SINGLE_TOKENS = "token pairs", "single tokens"
"""Arms of the null: tables that were counted on the text to train on."""

UNIFORM_TRAINING = "uniform"
LEARNING_RATE, WARMUP = "learning_rate", "warmup"
"""Conditions of rates: which setting the `amount` is."""

FLOPS, BUDGET = "flops", "budget"
"""Conditions of comparisons, beside `TOKENS` and `SECONDS`: what two arms had alike; uniform's whole budget."""

DIFFERENCE, AT = "difference", "at"
SAVING, SAVING_AT_MOST, SAVING_AT_LEAST = "saving", "saving_at_most", "saving_at_least"
LOSS_RATIO, TIME_SAVED, READ_OFF = "loss_ratio", "time_saved", "read_off"
NEVER, SOONER = "never", "sooner"


# Runs side by side, of each of which `arm` is the model: curves and layers by the percent of the depth, which is their
# `amount`, with their family (`part`) and strategy (`condition`)

MODEL, CURVE, SCORE_CURVE, LAYER = "model", "curve", "score_curve", "layer"
COINCIDENCE = "coincidence"
"""The greatest difference of the curves of `arm` and `against`, where it is (`amount`), and whether they coincide. The
task is the whole text, or the mean or median of the benchmarks."""
CLAIM, EVERY, ANY = "claim", "every model", "any model"
"""A claim (`condition`) of a paper (`part`): its verdict in a model is the metric, and the value says what is left of
it after correction over models, 1 that it holds and -1 that it does not. Rows `against` every or any model say what
holds over them, of `value` models that were measured among `amount`."""
# Evaluations of lm-eval, document by document: scores of `arm`, differences to the baseline (`against`), and losses of
# which `amount` is tolerated; what they decide is the `condition`

EVALUATED, PAIRED, TOLERANCE, NEEDED, EXCEEDED, KEPT = (
    "evaluated",
    "paired",
    "tolerance",
    "needed",
    "exceeded",
    "kept",
)
WORSE, ALIKE, UNRESOLVED = "worse", "alike", "inconclusive"
PAIRED_DECISIONS = (WORSE, BETTER, ALIKE, UNRESOLVED)
