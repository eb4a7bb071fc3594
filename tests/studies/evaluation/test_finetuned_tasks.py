"""Fine-tuning on tasks: planted tasks are learned, random labels are not, and stored answers are reused."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from layerwise.data.suites.classification import ClassificationTask, LabeledText
from layerwise.errors import CheckpointError, TrainError
from layerwise.measure.language.task_summary import task_rows
from layerwise.measure.stats.seeds import seed_interval
from layerwise.results import Run
from layerwise.results.manifest import Manifest
from layerwise.results.rows import Score
from layerwise.studies.evaluate import finetuned_tasks
from layerwise.studies.evaluate.finetuned_tasks import (
    LEARNING_CURVE,
    PREDICTIONS,
    FineTunedModel,
    fine_tune_model,
    run_task,
)
from layerwise.train import fine_tuning
from layerwise.train.fine_tuning import CurvePoint, FineTuningConfig, FineTuningResult, fine_tune
from row_names import named
from tiny_tokenizers import character_tokenizer
from train.learners import planted, tiny_bert
from train.tiny_models import rooted

QUICK = FineTuningConfig(learning_rates=(3e-3,), batch_size=16, epochs=8, patience=8)
HOW: dict[str, Any] = {"progress": lambda label, share: None, "device": "cpu"}
ONCE = FineTuningConfig(learning_rates=(3e-3,), batch_size=16, epochs=1)

pytestmark = pytest.mark.usefixtures("quiet_transformers")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    manifest = Manifest("models", None, "w1", "float32", "cpu", "texts", "c1", 3, 90, 64, ("glue",), ("planted",), 7)
    with Run.create(tmp_path / "run", manifest) as found:
        yield found


def benchmark(
    location: Path, task: ClassificationTask, settings: FineTuningConfig, seed: int, **options: Any
) -> list[Score]:
    used, outcome = fine_tune_model(FineTunedModel("bert", 0, location), task, settings, seed, **HOW, **options)
    return task_rows(used, outcome.labels, outcome.predictions)


def _found(rows: list[Score], name: str, metric: str, against: str | None = None) -> Score:
    of = [row for row in rows if (row.metric, row.against) == (metric, against)]
    (row,) = (row for row in of if named(replace(row, against=None)) == name)
    return row


def test_a_planted_task_is_learned(bert: Path) -> None:
    rows = benchmark(bert, planted(), QUICK, 0)
    assert _found(rows, "all", "mcc").value > 0.95
    assert _found(rows, "all", "accuracy").value > 0.95
    assert _found(rows, "all", "accuracy").documents == 60


def test_random_labels_stay_at_chance(bert: Path) -> None:
    rows = benchmark(bert, planted(800, random_labels=True), ONCE, 0)
    found = _found(rows, "all", "mcc")
    assert found.low < 0 < found.high
    assert _found(rows, "all", "mcc", "chance").value == 0.0


def test_a_decoder_without_a_padding_token_is_fine_tuned(tmp_path: Path) -> None:
    tokenizer = character_tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    texts = [
        LabeledText("xy"[number % 2] + "abc"[number % 3] * (number // 2 + 1), None, number % 2) for number in range(48)
    ]
    task = ClassificationTask(
        "glue", "letters", ("x", "y"), "accuracy", tuple(texts[:24]), tuple(texts[24:36]), tuple(texts[36:])
    )
    assert fine_tune(tmp_path, task, replace(QUICK, epochs=20), 0, device="cpu").selection > 0.9


def test_answers_stay_with_their_examples(bert: Path) -> None:
    task = planted()
    mixed = tuple(row._replace(text=row.text + " w5" * (17 * number % 23)) for number, row in enumerate(task.test))
    outcome = fine_tune(bert, replace(task, test=mixed), QUICK, 0, device="cpu")
    assert outcome.labels == tuple(row.label for row in mixed)
    wrong = sum(first != second for first, second in zip(outcome.labels, outcome.predictions, strict=True))
    assert wrong <= 6


@pytest.mark.slow
def test_fine_tuning_is_reproducible_by_seed(bert: Path) -> None:
    first, again, other = (fine_tune(bert, planted(), ONCE, seed, device="cpu") for seed in (0, 0, 1))
    assert replace(first, seconds=0) == replace(again, seconds=0)
    assert first.predictions != other.predictions


@pytest.mark.slow
def test_the_best_learning_rate_is_selected(bert: Path) -> None:
    told: list[tuple[int, int]] = []
    settings = replace(QUICK, learning_rates=(1e-7, 3e-3))
    outcome = fine_tune(bert, planted(), settings, 0, device="cpu", progress=lambda step, of: told.append((step, of)))
    assert outcome.learning_rate == 3e-3
    assert outcome.selection > 0.9
    assert told == [(step + 1, 2 * 64) for step in range(2 * 64)]


@pytest.mark.slow
def test_the_test_set_is_not_used_for_selection(bert: Path) -> None:
    task = planted()
    flipped = replace(task, test=tuple(row._replace(label=1 - row.label) for row in task.test))
    first, second = (fine_tune(bert, each, QUICK, 0, device="cpu") for each in (task, flipped))
    assert (first.predictions, first.selection, first.epoch) == (second.predictions, second.selection, second.epoch)


def test_patience_stops_fine_tuning(bert: Path) -> None:
    steps: list[int] = []
    coin = planted(random_labels=True)
    settings = replace(QUICK, learning_rates=(1e-9,), epochs=50, patience=2)
    outcome = fine_tune(bert, coin, settings, 0, device="cpu", progress=lambda step, _: steps.append(step))
    assert outcome.epoch == 1
    assert max(steps) == 3 * 8


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []

    def all_ones(
        location: Path, task: ClassificationTask, settings: FineTuningConfig, seed: int, **_: Any
    ) -> FineTuningResult:
        found.append((Path(location).name, task.name, seed))
        answers = [1] * len(task.test)
        answers[:seed] = [0] * seed
        return FineTuningResult(tuple(answers), tuple(row.label for row in task.test), 0.5, 1e-3, 1, 0.1)

    monkeypatch.setattr(finetuned_tasks, "fine_tune", all_ones)
    return found


def _models(folder: Path) -> list[FineTunedModel]:
    found = []
    for variant in ("ltg", "elc"):
        for seed in range(2):
            location = folder / f"{variant}-{seed}"
            location.mkdir()
            (location / "config.json").write_text(json.dumps({"variant": variant, "seed": seed}))
            found.append(FineTunedModel(variant, seed, location))
    return found


def test_rows_cover_fine_tunings_models_and_variants(tmp_path: Path, run: Run, trained: list[Any]) -> None:
    rows = run_task(_models(tmp_path), planted(), ONCE, run, seeds=3, **HOW)
    values = {named(row): row.value for row in rows if row.metric == "accuracy" and row.against is None}
    assert set(values) == {
        *(
            f"{variant}/{seed}{part}"
            for variant in ("ltg", "elc")
            for seed in (0, 1)
            for part in ("", ".0", ".1", ".2")
        ),
        "ltg",
        "elc",
    }
    own = [values[f"elc/1.{seed}"] for seed in range(3)]
    assert len(set(own)) == 2
    row = _found(rows, "elc/1", "accuracy")
    assert row.value == pytest.approx(sum(own) / 3)
    each = [_found(rows, f"elc/1.{seed}", "accuracy") for seed in range(3)]
    assert (row.low, row.high) == seed_interval(own, "accuracy", [(one.low, one.high) for one in each])
    assert row.low is not None
    assert _found(rows, "elc", "accuracy").value == pytest.approx((values["elc/0"] + values["elc/1"]) / 2)
    assert _found(rows, "elc", "accuracy", "chance").value == 0.5
    assert _found(rows, "elc/1.0", "mcc").value == 0.0
    assert {(row.measure, row.task) for row in rows} == {("glue", "planted")}
    assert sorted(map(str, run.store.scores("glue"))) == sorted(map(str, rows))


def test_finished_fine_tunings_are_not_repeated(tmp_path: Path, run: Run, trained: list[Any]) -> None:
    models = _models(tmp_path)
    rows = run_task(models, planted(), ONCE, run, seeds=2, **HOW)
    assert len(trained) == 8
    trained.clear()
    assert run_task(models, planted(), ONCE, run, seeds=2, **HOW) == rows
    assert trained == []
    run_task(models, planted(), ONCE, run, seeds=3, **HOW)
    assert trained == [(Path(model.location).name, "planted", 2) for model in models]
    trained.clear()
    next((run.folder / PREDICTIONS).glob("glue/planted/ltg-1.0-*.json")).unlink()
    run_task(models, planted(), ONCE, run, seeds=3, **HOW)
    assert trained == [("ltg-1", "planted", 0)]


def test_changed_inputs_are_fine_tuned_again(tmp_path: Path, run: Run, trained: list[Any]) -> None:
    location = Path(_models(tmp_path)[0].location)
    keep = run.folder / PREDICTIONS

    def again(task: ClassificationTask, settings: FineTuningConfig) -> int:
        trained.clear()
        benchmark(location, task, settings, 0, keep=keep)
        return len(trained)

    assert again(planted(), ONCE) == 1
    assert again(planted(), ONCE) == 0
    assert again(planted(), replace(ONCE, learning_rates=(1e-4,))) == 1
    assert again(planted(), replace(ONCE, training_limit=10)) == 1
    assert again(planted(seed=1), ONCE) == 1
    (location / "model.safetensors").write_bytes(b"other weights")
    assert again(planted(), ONCE) == 1


def test_rows_of_other_tasks_and_models_are_preserved(tmp_path: Path, run: Run, trained: list[Any]) -> None:
    models = _models(tmp_path)
    other = replace(planted(seed=1), name="other", source="from another seed")
    run_task(models, planted(), ONCE, run, seeds=1, **HOW)
    run_task(models[:1], other, ONCE, run, seeds=1, **HOW)
    run_task(models[:1], planted(), ONCE, run, seeds=2, **HOW)
    stored = [row for row in run.store.scores("glue", metric="mcc") if row.against is None]
    assert {named(row) for row in stored if row.task == "other"} == {"ltg/0", "ltg/0.0", "ltg"}
    assert {"elc/1", "ltg/0.1"} <= {named(row) for row in stored if row.task == "planted"}
    notes = [note.text for note in run.store.notes("glue")]
    assert len(notes) == 2
    assert any(note.startswith("other: from another seed; examples: train 120") for note in notes)


def test_a_learning_curve_replaces_an_earlier_one(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def followed(
        location: Path, task: ClassificationTask, settings: FineTuningConfig, seed: int, **_: Any
    ) -> FineTuningResult:
        points = tuple(CurvePoint(step + settings.evals, 0.5) for step in (1, 8))
        labels = tuple(row.label for row in task.test)
        return FineTuningResult(labels, labels, 1.0, 1e-3, 1, 0.1, points, 0.25)

    monkeypatch.setattr(finetuned_tasks, "fine_tune", followed)
    models = _models(tmp_path)[:2]
    for evals in (1, 2, 2):
        run_task(models, planted(), replace(ONCE, evals=evals), run, seeds=1, **HOW)
    rows = run.store.scores(LEARNING_CURVE)
    assert {(row.task, row.step, row.metric, row.value) for row in rows if named(row) == "ltg/1.0"} == {
        ("planted", 3, "mcc", 0.5),
        ("planted", 10, "mcc", 0.5),
        ("planted", None, "step_seconds", 0.25),
    }
    assert len(rows) == 6


def test_models_without_a_classification_head_are_an_error(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be loaded with a head for 2 classes"):
        fine_tune(tmp_path, planted(), ONCE, 0, device="cpu")
    config = json.loads((bert / "config.json").read_text())
    deeper = tmp_path / "deeper"
    deeper.mkdir()
    for path in bert.iterdir():
        (deeper / path.name).write_bytes(path.read_bytes())
    (deeper / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match=r"lacks \d+ tensors? that BertForSequenceClassification needs"):
        fine_tune(deeper, planted(), ONCE, 0, device="cpu")


def test_non_finite_answers_are_an_error(tmp_path: Path) -> None:
    broken = tiny_bert(tmp_path)
    weights = load_file(broken / "model.safetensors")
    weights["bert.encoder.layer.1.output.dense.bias"][0] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(TrainError, match=r"the loss of step 1 is nan.*on planted.*Use a smaller learning rate"):
        fine_tune(broken, planted(), ONCE, 0, device="cpu")


def test_a_non_finite_gradient_is_an_error(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = fine_tuning._with_head
    monkeypatch.setattr(fine_tuning, "_with_head", lambda *args: (rooted(own(*args)[0]), *own(*args)[1:]))
    with pytest.raises(TrainError, match=r"the loss of step 1 is finite, but its gradient norm is nan.*on planted"):
        fine_tune(bert, planted(), ONCE, 0, device="cpu")
