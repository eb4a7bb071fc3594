"""The examples run as they are, on a model of a user's own."""

import sys
from pathlib import Path
from runpy import run_path

import pytest

from conftest import tiny_llama
from tiny_tokenizers import ALPHABET, character_tokenizer

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_llama(4, vocabulary=3 + len(ALPHABET)).save_pretrained(folder)
    character_tokenizer().save_pretrained(folder)
    return folder


def test_examples_are_numbered_and_short() -> None:
    assert [path.name[:3] for path in EXAMPLES] == ["01_", "02_", "03_", "04_", "05_", "06_", "07_"]
    assert all(len(path.read_text().splitlines()) < 80 for path in EXAMPLES)


SHORTER = {
    "05_any_order": {"epochs=3": "epochs=1", "splits.test,": "[splits.test[number] for number in range(20)],"},
    "07_growth": {"STEPS = 200": "STEPS = 10"},
}
"""Shorter settings in CI; nightly runs the examples unchanged."""

EXPECTED = zip(
    EXAMPLES,
    [
        "one layer skipped     0 1 3",
        "layer 3 ",
        "0-5",
        "rank correlation",
        "trained shuffled",
        "bypass a layer: layer",
        "top-first: {} steps",
    ],
    strict=True,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "expected", "shorter"),
    [
        pytest.param(example, expected, shorter, marks=marks, id=f"{example.stem}{'' if shorter else ' whole'}")
        for example, expected in EXPECTED
        for shorter, marks in ((True, ()), *([(False, pytest.mark.nightly)] if example.stem in SHORTER else []))
    ],
)
def test_an_example_runs(
    model: Path,
    example: Path,
    expected: str,
    shorter: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = example.read_text()
    for own, less in SHORTER.get(example.stem, {}).items() if shorter else ():
        assert own in text
        text = text.replace(own, less)
    script = tmp_path / example.name
    script.write_text(text)
    monkeypatch.setattr(sys, "argv", [str(script), *([str(model)] if "[MODEL" in text else [])])
    run_path(str(script), run_name="__main__")
    assert expected.format(12 if shorter else 240) in capsys.readouterr().out
