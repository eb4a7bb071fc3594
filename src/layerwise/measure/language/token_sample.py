"""A sample of the scored tokens: the head of a large vocabulary reads these, the layers read all of them.

A head multiplies every scored token with the whole vocabulary, which at 49,152 words and a width of 576 costs as much
as eight layers. The tokens of a document err together, so a few of them say nearly what all do. Documents are drawn
first, by whoever made the text, and tokens within them here (two-stage sampling, Cochran 1977, chapter 10): a window of
n scored tokens keeps m of them, and its loss is estimated by

    nll = n / m * sum over the kept tokens of -log p(token)

which is unbiased, because every token is kept with probability m / n. All plans are scored on the same tokens, so
differences stay paired. Intervals over documents need no correction: the spread between the documents' estimates holds
what the tokens within them add (the ultimate-cluster estimator, Hansen, Hurwitz and Madow 1953), and they are wider by
just that.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from random import Random

from layerwise.data.batches import IGNORED, AnyBatch, Batch
from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import EvalData


def token_sample(data: EvalData, share: float, seed: int = 0) -> EvalData:
    """`data` with targets for `share` of the scored tokens of each window, one at least; for a share of 1 itself.

    The inputs and the windows stay as they are. Answers keep all of their tokens, since an exact match needs every one.
    The tokens depend on `seed` and the name of the window alone, neither on the batches nor on the plans.
    Raises `MeasureError` for a share that is not above 0, or is above 1.
    """
    if not 0 < share <= 1:
        raise MeasureError(
            f"the head was to read {share} of the scored tokens; use a share above 0 and at most 1, such as 0.25"
        )
    if share == 1:
        return data
    batches = tuple(_thinned(batch, share, seed, data.answer_tasks) for batch in data.batches)
    digest = hashlib.sha256(f"{data.digest} head {share} {seed}".encode()).hexdigest()
    return replace(data, name=f"{data.name}, the head on {share:.4g} of the tokens", digest=digest, batches=batches)


def drawn_positions(count: int, share: float, draw: Random) -> tuple[int, ...]:
    """Which of `count` scored tokens are kept, in order: ceil(share * count) of them, spread evenly.

    The tokens lie on a ring that is turned by a random number of positions and cut into equal runs; one token of each
    run is drawn. Turning it makes all tokens equally likely, also where the runs are not of one length.

    >>> positions = drawn_positions(10, 0.3, Random(0))
    >>> len(positions), positions == tuple(sorted(set(positions)))
    (3, True)
    """
    kept = max(1, math.ceil(share * count - 1e-9))
    turned = draw.randrange(count)
    bounds = [count * run // kept for run in range(kept + 1)]
    drawn = (draw.randrange(*bounds[run : run + 2]) for run in range(kept))
    return tuple(sorted((turned + position) % count for position in drawn))


def _thinned(batch: AnyBatch, share: float, seed: int, whole: tuple[str, ...]) -> AnyBatch:
    """The batch with fewer targets; that of labelled items as it is, since each of them has one."""
    if not isinstance(batch, Batch):
        return batch
    targets = batch.targets.clone()
    for row, window in enumerate(batch.windows):
        if window.task in whole:
            continue
        scored = batch.scored[row].nonzero().flatten()
        draw = Random(f"{seed}/{window.task}/{window.document}/{window.index}")
        kept = scored[list(drawn_positions(len(scored), share, draw))]
        targets[row] = IGNORED
        targets[row, kept] = batch.targets[row, kept]
    return replace(batch, targets=targets)
