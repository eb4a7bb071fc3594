"""`layerwise train elc-study` from beginning to end, on few words: every question has its rows."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from cli.command import layerwise, refused
from data.glue_files import write
from experiments.outlines import outline_of
from layerwise.data.suites import generated_pairs
from layerwise.data.suites.generated_msgs import Sizes
from layerwise.experiments.layer_weights_study import arms
from layerwise.experiments.layer_weights_study.tunings import REWIRED
from layerwise.experiments.pretraining.config import LayerWeightsStudy
from layerwise.results import Run
from row_names import named

WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "words.txt"
    documents = ["\n".join(WORDS[(n + k) % 4] for k in range(30 + n)) for n in range(30)]
    path.write_text("\n<|endoftext|>\n".join(documents) + "\n")
    return path


@pytest.fixture(scope="module")
def few_examples() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arms, "PAIRS_EACH", 1)
        patch.setattr(arms, "SIZES", Sizes(16, 8, 8))
        patch.setattr(generated_pairs, "PARADIGMS", dict(islice(generated_pairs.PARADIGMS.items(), 3)))
        yield


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shares", "1/8,2"), "above 0 and up to 1, as in 1/8,1/4,1/2,1; found '2'"),
        (("--shares", "half"), "found 'half'"),
        (("--shares", "1/2,0.5"), "--shares names 0.5 twice"),
        (("--bias", "1,1"), "--bias names 1 twice"),
        (("--set", "glue_tasks=rte"), "it is read with --glue"),
    ],
)
def test_shares_and_biases_that_cannot_be_are_refused(options: tuple[str, str], message: str) -> None:
    assert message in refused("train", "elc-study", *options)


def test_several_processes_are_refused(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "start it without torchrun" in refused("train", "elc-study", "--text", texts)


@pytest.mark.nightly
def test_every_question_has_its_rows(texts: Path, tmp_path: Path, few_examples: None) -> None:
    folder = tmp_path / "run"
    command = ("train", "elc-study", "--text", texts, "--steps", "2", "--batch-size", "8", "--seeds", "2")
    write(folder.parent / "glue", "rte", train=16, valid=8)
    glue = ("--glue", folder.parent / "glue", "--set", "glue_epochs=1", "--set", "tuning_evals=2")
    more = ("--bias", "0,1,2", "--shares", "1/2,1", *glue)
    ended = layerwise(*command, *more, "--device", "cpu", "--run", folder)
    assert ended.code == 0, ended.err
    with Run.open(folder) as run:
        rows = run.store.scores("study")
        agreement = run.store.scores("seed_agreement")
        uniformity = {named(row) for row in run.store.scores("uniformity")}
        convergence = {(named(row), row.condition) for row in run.store.scores("convergence", metric="ratio")}
        biases = {row.arm: row.amount for row in run.store.scores("initial_bias", metric="value")}
        shares = {(named(row), row.amount) for row in run.store.scores("data_share", task="masked_lm")}
        tuned = {
            (named(row), row.task, row.condition) for row in run.store.scores("tuning_convergence", metric="ratio")
        }
        on_glue = {row.arm for row in run.store.scores("glue", metric="accuracy")}
        mixed = {(row.arm, row.task) for row in run.store.scores("msgs-ours", metric="mcc")}
    answered = {(named(row), " ".join(filter(None, (row.task, row.condition)))) for row in rows}
    named = ("elc", "zero", "elc-identity", "elc-frozen", "denseformer")
    others = (*named, "elc-bias-2")
    assert uniformity == set(others) - {"denseformer"}
    assert convergence == {(f"{arm} - ltg", cost) for arm in others for cost in ("steps", "seconds")}
    assert biases == {"zero": 0, "elc": 1, "elc-bias-2": 2}
    names = ("ltg", "elc", "elc - ltg")
    assert {(name, share) for name in names for share in (0.5, 1.0)} <= shares
    asked = {"ltg", "elc-seconds", "ltg-rewired", "elc-kept", *others}
    assert {(arm, task) for arm in asked for task in arms.TASKS} <= mixed, "no arm has an empty cell"
    assert asked <= on_glue
    assert {name for name, task, cost in tuned if (task, cost) == ("rte", "steps")} == {
        f"{arm} - ltg" for arm in asked - {"ltg", "elc-seconds"}
    }
    assert ("elc-kept - ltg", "all", "steps") in tuned
    for task in ("training step", "forward pass", "memory of a step"):
        assert {name for name, of in answered if of == task} == {f"{arm} - ltg" for arm in named}
    for task in ("masked_lm tokens", "pairs tokens"):
        assert {name for name, of in answered if of == task} == {
            "elc - elc-frozen",
            *(f"{arm} - ltg" for arm in others),
        }
    for task in ("control tasks tokens", "linguistic generalisation tokens", "glue tokens"):
        assert {name for name, of in answered if of == task} == {
            "elc - elc-kept",
            "elc - elc-frozen",
            *(f"{arm} - ltg" for arm in (*others, "ltg-rewired", "elc-kept")),
        }
    assert {("elc - ltg", "masked_lm seconds"), ("elc - ltg", "pairs seconds")} <= answered
    assert {named(row) for row in agreement} == {"elc", "zero", "elc-identity", "denseformer", "elc-bias-2"}
    assert "elc against ltg" in ended.out or "elc worth it against ltg" in ended.out


def test_overwrite_discards_the_models_that_were_made_from_others(texts: Path, tmp_path: Path) -> None:
    config = LayerWeightsStudy(text=texts, steps=2, batch_size=8, device="cpu")
    outline = outline_of(config)
    for folder in (tmp_path / REWIRED / "ltg-0", tmp_path / "ltg" / "seed-0"):
        folder.mkdir(parents=True)
    outline.discard(tmp_path)
    assert not list(tmp_path.glob("*/*"))
