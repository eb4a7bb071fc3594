"""A dry run says what a run would cost, computes nothing, and makes no folder: every verb that computes."""

import shlex
import shutil
from pathlib import Path

import pytest
import transformers

from cli.command import layerwise
from cli.conftest import save_llama, save_texts
from cli.picture_models import save_vit
from layerwise.data.model_location import location_of
from layerwise.data.vision.digits import digits
from studies.growth.tiny_inputs import save_config, save_documents
from studies.merging import trained_vit

DIGITS = "--images digits --limit 20"
PHASED = "--model config --text documents --batch-size 4 --max-length 16"
SAID = {
    "sweep llama --text texts --families leave_one_out --no-similarity": (
        "layer evaluations (16 without prefix sharing, ",
    ),
    "time llama --plan 0-3 --plan '0 (1|2) 3' --context 6 --rounds 6": (
        "2 plans timed in turns, 6 rounds; prefill, batch 1, context 6; decode",
    ),
    "evaluate llama --suite pairs,msgs-ours --tasks 'control length' --limit 3": (
        " sentences to score, 3 fine-tuning runs",
    ),
    f"robustness vit {DIGITS} --orders 3 --draws 2": (
        "each model is evaluated under 26 conditions and 3 fixed orders on 20 examples",
    ),
    "robustness merge one two --draws 3": ("2 models of 1 variant: 6 merged models, each evaluated on",),
    f"train robust layershuffle --model vit {DIGITS} --epochs 1 --batch-size 10 --seeds 2": (
        "training takes 8 optimizer steps, forward and backward over 80 examples",
        "run directory: run",
    ),
    f"train growth {PHASED} --schedules freezing --steps 40": (
        "freezing, for 4 layers:",
        "from layer 3, 16.7 % of the steps: trains 3, embedding false",
        "█ learns",
        "uniform in 40 steps of 64 tokens",
        "(equal flops)",
        "epochs in which each layer is trained: 0.",
    ),
    f"train growth {PHASED} --schedules importance,ramp --frontier --seeds 3 --learning-rates 1e-3,4e-3 --steps 8": (
        "18 training runs: uniform, ramp, uniform@0.8, uniform@1.18, uniform@1.4, importance; 3 seeds each",
        "4 training runs to tune uniform, importance, and more while the best rate is at the edge of the grid",
    ),
    "train elc --text documents --steps 3 --batch-size 8 --evals 1 --seeds 2": (
        "cost: 4 training runs of at most 768 tokens, 3,072 in total",
    ),
}
"""Parts of what each command prints about the models and texts of `inputs`."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    save_llama(folder / "llama")
    save_texts(folder / "texts")
    save_vit(folder / "vit")
    save_config(folder / "config")
    (folder / "documents").mkdir()
    save_documents(folder / "documents")
    for seed, name in enumerate(("one", "two")):
        trained_vit.save_vit(folder / name, seed, "variant", data=digits().digest)
    return folder


@pytest.mark.parametrize("command", SAID)
def test_the_cost_is_said_and_nothing_is_computed(
    command: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (inputs / word if (inputs / word).exists() else word for word in shlex.split(command))
    ended = layerwise(*words, "--run", "run", "--dry-run")
    assert ended.code == 0, ended.err
    for said in SAID[command]:
        assert said in ended.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["taken", "taken/inside"])
def test_a_run_folder_that_cannot_be_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "e.yaml").write_text(f"experiment: sweep\nmodel: demo\nrun: {place}\n")
    for words in (("run", "e.yaml"), ("sweep", "demo", "--run", place)):
        ended = layerwise(*words, "--dry-run")
        assert ended.code == 2
        assert f"--run must be a directory, got {place} (taken is a file)" in ended.err
        assert "loading" not in ended.err


def test_the_hub_is_not_asked_about_a_demo_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(location_of("demo-vit"), tmp_path / "copy")
    asked: list[str] = []
    monkeypatch.setattr(transformers.utils, "cached_file", lambda where, *_, **__: asked.append(where))
    ended = layerwise("robustness", "merge", "demo-vit", tmp_path / "copy", "--images", "digits", "--dry-run")
    assert (ended.code, asked) == (0, []), ended.err
