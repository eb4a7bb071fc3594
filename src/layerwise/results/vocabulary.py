"""The names that rows are written with and read by: measures, metrics, arms and conditions, each in one place.

What writes a row and what reads it both import its names from here, so that no name is declared twice and none is
spelled in two ways. A name that one file alone uses stays in that file.
"""

from __future__ import annotations

from layerwise.results.rows import Score

# Every kind of run

ALL = "all"
"""The task that is the whole text."""

# Trainings: by `arm` and `seed`; the `amount` of a loss is its step

TRAINING = "training"
TRAIN_LOSS, VALIDATION_LOSS = "train_loss", "validation_loss"

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

# Models that were pre-trained, evaluated, fine-tuned and cut: `arm` is a wiring or a model, `seed` one training of it

MASKED_LM, ALPHA, SEED_AGREEMENT, UNIFORMITY, STABILITY = (
    "masked_lm", "alpha", "seed_agreement", "uniformity", "stability",
)  # fmt: skip
EDGES, EDGE_PHENOMENA = "edges", "edge_phenomena"
OUTPUT, EMBEDDING = "output", 0
"""Of an edge `layer` is the reader and `other` the source: 0 is the embedding, and n + 1 what layer n wrote. What the
model's output reads has the `part` `OUTPUT` and no layer."""


def edge_name(row: Score) -> str:
    """The edge that a row is about, as a model keeps its weights.

    >>> edge_name(Score.of(EDGES, "effect", 0.1, layer=3, other=EMBEDDING))
    '3<-0'
    >>> edge_name(Score.of(EDGES, "effect", 0.1, part=OUTPUT, other=4))
    'out<-4'
    """
    return f"{'out' if row.part == OUTPUT else row.layer}<-{row.other}"


STUDY, ATTRIBUTION, INITIAL_BIAS, DATA_SHARE = "study", "attribution", "initial_bias", "data_share"
CONVERGENCE, TUNING_CONVERGENCE, LEARNING_CURVE, BABYLM = (
    "convergence", "tuning_convergence", "learning_curve", "babylm",
)  # fmt: skip
STEPS, SECONDS, TOKENS = "steps", "seconds", "tokens"
"""Conditions: which cost was counted, and what two arms had alike when they were compared."""

PAIRS, GLUE, MSGS, OUR_MSGS = "pairs", "glue", "msgs", "msgs-ours"
"""Suites, which are measures of their own: minimal pairs (also others, and files), and tasks to be fine-tuned on.

Of a fine-tuned task `seed` is that of the model, and `other` that of its fine-tuning."""

FINE_TUNED = (GLUE, MSGS, OUR_MSGS)
PHENOMENON, PARADIGM = "phenomenon", "paradigm"
"""Conditions of minimal pairs: what the task is; over all of them there is none."""

NORMALISED = "normalised"
"""The condition of a score of a fine-tuned task on the scale from chance, 0, to the model as trained, 1."""

CHANCE, SHUFFLED, SIZE = "chance", "shuffled", "size"
"""What values are against: guessing, permuted sources or labels, and edges cut by the size of their weight."""

BEYOND_START, BEYOND_DISTANCE = "beyond the start", "beyond distance"
"""Conditions of the agreement of seeds: the start that they share, or being neighbours, was taken off."""

BACKBONE, LAYER_WEIGHTS = "ltg", "elc"
"""The arm without layer weights, and that with the paper's."""
