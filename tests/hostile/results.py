"""Bad input that concerns run folders, reports, exports and options."""

from __future__ import annotations

from hostile.case import Case
from hostile.material import model_and_texts

SWEEP = ("sweep", "model", "--families", "leave_one_out", "--no-similarity")

CASES: tuple[Case, ...] = (
    Case(
        "the report of a folder that is no run", ("report", "texts"), ("is not a run",), model_and_texts,
    ),
    Case(
        "a sweep carried on with another seed",
        (*SWEEP, "--text", "texts", "--run", "run", "--seed", "1"),
        ("This folder holds another run", "--fresh"),
        model_and_texts,
        before=((*SWEEP, "--text", "texts", "--run", "run"),),
    ),
)  # fmt: skip
