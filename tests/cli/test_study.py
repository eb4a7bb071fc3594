"""`layerwise study` from beginning to end, on few words: every question is asked, every answer has its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.command import layerwise, refused
from layerwise.data.mixed_signals import Sizes
from layerwise.results import Run
from layerwise.train import weight_study

WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")


def test_a_study_that_there_is_not() -> None:
    assert "No such command 'layer-wieghts'. Did you mean 'layer-weights'?" in refused("study", "layer-wieghts")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_study_of_layer_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_study, "PAIRS", 1)
    monkeypatch.setattr(weight_study, "SIZES", Sizes(16, 8, 8))
    texts, folder = tmp_path / "words.txt", tmp_path / "run"
    documents = ["\n".join(WORDS[(n + k) % 4] for k in range(30 + n)) for n in range(30)]
    texts.write_text("\n<|endoftext|>\n".join(documents) + "\n")
    asked = ("study", "layer-weights", "--text", texts, "--steps", "2", "--batch", "8", "--seeds", "2")
    ended = layerwise(*asked, "--device", "cpu", "--run", folder)
    assert ended.code == 0, ended.err
    with Run.open(folder) as run:
        rows = run.store.scores("study")
        alike = run.store.scores("likeness")
    told = {(row.subject, row.task) for row in rows}
    others = ("elc", "zero", "elc-identity", "elc-held", "denseformer")
    for task in ("training step", "forward pass", "memory of a step"):
        assert {subject for subject, of in told if of == task} == {f"{arm} - ltg" for arm in others}
    for task in ("masked_lm tokens", "pairs tokens"):
        assert {subject for subject, of in told if of == task} == {
            "elc - elc-held",
            *(f"{arm} - ltg" for arm in others),
        }
    for task in ("control tasks tokens", "linguistic generalisation tokens"):
        assert {subject for subject, of in told if of == task} == {
            "elc - elc-kept",
            *(f"{arm} - ltg" for arm in ("elc", "ltg-rewired", "elc-kept")),
        }
    assert {("elc - ltg", "masked_lm seconds"), ("elc - ltg", "pairs seconds")} <= told
    assert {row.subject for row in alike} == {"elc", "zero", "elc-identity", "denseformer"}
    assert "elc against ltg" in ended.out or "elc worth it against ltg" in ended.out
    again = layerwise(*asked, "--device", "cpu", "--run", folder)
    assert again.out.splitlines()[:-1] == ended.out.splitlines()[:-1]
