"""Groups that run as one, on every type of the zoo: equal to the reference, or refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any
from unittest.mock import patch

import torch

from contracts import specimen
from contracts.checks import Subject
from contracts.specimen import DEPTH
from layerwise.errors import UnsupportedModel
from layerwise.stack.executors.fused.execution import BatchedGroup
from layerwise.stack.inputs import main_tensor
from layerwise.stack.rounding import EPS, gap

UNITS = 64
"""The units of rounding that a fused plan and the same plan step by step may be apart."""

YES = "yes"


def groups() -> Iterator[str]:
    """Groups of three layers, then of two: a pattern of unlike layers has alike ones somewhere."""
    for size in (3, 2):
        for members in combinations(range(DEPTH), size):
            yield f"({'|'.join(map(str, members))})"


def reason_or_yes(subject: Subject) -> str:
    """`yes` where a group of alike layers runs as one, as the reference does, else why the first such is refused.

    Raises `AssertionError` where a group is accepted and does not run as the reference, or runs in turn.
    """
    refusals = []
    for group in groups():
        plan = f"0-4 {group} {group}:sum"
        try:
            with subject.stack.under(plan, fused=True):
                pass
        except UnsupportedModel as refused:
            refusals.append(str(refused))
            continue
        _check(subject, plan)
        return YES
    unlike = [each for each in refusals if " differ in " not in each]
    return (unlike or refusals)[0].partition(" cannot be fused: ")[2].partition(". Leave out")[0]


@contextmanager
def counted() -> Iterator[list[BatchedGroup]]:
    """Within the context the groups that run as one are noted."""
    noted: list[BatchedGroup] = []
    plain = BatchedGroup.outputs

    def noting(self: BatchedGroup, *call: Any) -> Any:
        noted.append(self)
        return plain(self, *call)

    with patch.object(BatchedGroup, "outputs", noting):
        yield noted


def _check(subject: Subject, plan: str) -> None:
    model, stack = subject.model, subject.stack
    batch = specimen.inputs(subject.specimen, model, length=10)
    with torch.no_grad():
        expected = stack.logits(plan, **batch)
        with stack.under(plan, fused=True), counted() as together:
            inside = main_tensor(model(**batch))
    assert len(together) == 2, "the groups ran in turn"
    apart = gap(inside, expected) / EPS
    assert apart <= UNITS, f"{subject.specimen} under {plan}, fused: off by {apart:.0f} units of rounding"
    if subject.specimen.kind == "decoder":
        _check_decoding(subject, plan)


def _check_decoding(subject: Subject, plan: str) -> None:
    """Tokens decoded with a cache are those that are computed from the whole text again, padded on the left or not."""
    model, stack = subject.model, subject.stack
    whole = specimen.inputs(subject.specimen, model, length=9)
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": specimen.PAD}
    for batch in (whole, specimen.padded(whole)):
        with stack.under(plan):
            expected = model.generate(**batch, **options, use_cache=True)
        with stack.under(plan, fused=True), counted() as together:
            cached = model.generate(**batch, **options, use_cache=True)
        assert len(together) == 2 * 4, "groups ran in turn while they decoded"
        assert torch.equal(cached, expected), f"{subject.specimen} under {plan}, fused, decodes another text"
