"""Bad input that concerns files which a user hands in: models, texts, images, tables, schedules, and plans."""

from __future__ import annotations

from pathlib import Path

from hostile.case import Case
from hostile.material import model, model_and_texts

SWEEP = ("sweep", "model", "--run", "run", "--families", "leave_one_out", "--no-similarity")


def _empty_text(folder: Path) -> None:
    model(folder)
    (folder / "text.txt").write_bytes(b"")


CASES: tuple[Case, ...] = (
    Case("a sweep that is right", (*SWEEP, "--text", "texts"), None, model_and_texts),
    Case("an empty text", (*SWEEP, "--text", "text.txt"), ("is empty",), _empty_text),
)
