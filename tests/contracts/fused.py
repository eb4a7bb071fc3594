"""Groups that run as one, on every type of the zoo: equal to the reference, or refused with the reason.

From the repository, `PYTHONPATH=tests python -m contracts.fused` writes the section of docs/support.md about them, in
about five minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from contracts import specimen
from contracts.checks import Subject, subject
from contracts.specimen import DEPTH, Specimen
from contracts.zoo import SUPPORTED
from layerwise.errors import UnsupportedModel
from layerwise.stack.executors.fused.execution import BatchedGroup
from layerwise.stack.inputs import main_tensor
from layerwise.stack.rounding import EPS, gap

UNITS = 64
"""The units of rounding that a fused plan and the same plan step by step may be apart."""

YES = "yes"

PAGE = Path(__file__).parents[2] / "docs" / "support.md"

TITLE = "## Groups that run as one"
"""The heading of the section, which is the last of the page."""

_INTRODUCTION = """\
This section is written by `PYTHONPATH=tests python -m contracts.fused`. With `stack.under(plan, fused=True)` the
members of a group run as one (see [the guide](guides/fused_groups.md)). Each type was held to this: a plan with a group
of alike layers, run twice, gives what the plan gives step by step, within 64 units of rounding; and a decoder decodes,
with a cache, left-padded or not, the tokens that it decodes with the members in turn.
"""


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
    fusing = [each for each in refusals if " cannot be fused: " in each]  # and not refused without it, too
    unlike = [each for each in fusing if " differ in " not in each]
    return (unlike or fusing)[0].partition(" cannot be fused: ")[2].partition(". Leave out")[0]


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
        expected, plain = stack.logits(plan, **batch), main_tensor(model(**batch))
        with stack.fused_projections():
            projected = gap(main_tensor(model(**batch)), plain) / EPS
        with stack.under(plan, fused=True), counted() as together:
            inside = main_tensor(model(**batch))
    assert projected <= UNITS, f"{subject.specimen} with fused projections: off by {projected:.0f} units of rounding"
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


def section(answers: Iterable[tuple[Specimen, str]]) -> str:
    """The section of the page, from what `reason_or_yes` says of every type."""
    found = list(answers)
    accepted = [f"`{one}`" for one, answer in found if answer == YES]
    refused = [f"- `{one}`: {_plain(answer)}" for one, answer in found if answer != YES]
    return "\n".join(
        [
            TITLE,
            "",
            _INTRODUCTION,
            f"{len(accepted)} types hold it: {', '.join(accepted)}.",
            "",
            f"{len(refused)} are refused with the reason, and their groups run in turn without `fused`:",
            "",
            *refused,
            "",
        ]
    )


def _plain(reason: str) -> str:
    """The reason as it stands in the page: without the figures that another machine would print otherwise."""
    return re.sub(r"apart by \S+ of their size, rounding may leave \S+", "apart by more than rounding", reason)


def committed() -> dict[str, str]:
    """What the committed page says of every type."""
    text = PAGE.read_text(encoding="utf-8").partition(f"{TITLE}\n")[2]
    accepted = text.partition("types hold it: ")[2].partition(".\n")[0]
    refused = (line.removeprefix("- `").partition("`: ") for line in text.splitlines() if line.startswith("- `"))
    return {name.strip("`"): YES for name in accepted.split(", ")} | {name: reason for name, _, reason in refused}


def answer(one: Specimen) -> str:
    """What the page says of a type, found out."""
    return _plain(reason_or_yes(subject(one)))


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8").partition(f"{TITLE}\n")[0].rstrip()
    PAGE.write_text(f"{page}\n\n{section((one, answer(one)) for one in SUPPORTED)}", encoding="utf-8")
