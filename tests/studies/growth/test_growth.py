"""`layerwise train growth`: output, resuming, and rejected options."""

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from cli.command import Ended, layerwise, refused
from data import babylm
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.plan.schedule import GrowthSchedule, Phase
from layerwise.results import Manifest, Run, Score
from layerwise.studies.train_growth.schedule_file import write_schedule
from layerwise.studies.train_growth.task import FAMILY
from studies.growth.tiny_inputs import DEPTH, SHORT, record

STEP_TOKENS = 4 * 16
LONGER = (*SHORT[:1], "60", *SHORT[2:])


def growth(model: Path, text: Path, run: Path, *options: object) -> Ended:
    ended = layerwise("train", "growth", "--model", model, "--text", text, "--run", run, *map(str, options))
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture(scope="module")
def grown(config: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("runs") / "grown"
    return folder, growth(config, texts, folder, "--schedules", "stacking", "--seeds", 2, *LONGER)


@pytest.mark.slow
def test_models_and_rows_are_written(grown: tuple[Path, Ended]) -> None:
    folder, _ = grown
    AutoModelForCausalLM.from_pretrained(folder / "stacking" / "seed-1" / "model")
    with Run.open(folder) as run:
        rows = run.store.scores()
        assert run.manifest.families == (FAMILY,)
    held_out = {(row.variant, row.seed) for row in rows if row.measure == "held_out"}
    assert held_out == {(variant, seed) for variant in ("uniform", "stacking") for seed in (None, 0, 1)}
    metrics = {row.metric for row in rows if (row.measure, row.variant, row.seed) == ("training", "stacking", 0)}
    assert {"tokens", "flops", "step_seconds", "peak_bytes", "parameters"} <= metrics
    assert not [row for row in rows if row.claim], "what a row is about stands in its columns"
    phases = {row.phase for row in rows if row.measure == "schedule" and row.variant == "stacking"}
    timed = {row.phase for row in rows if (row.variant, row.metric) == ("stacking", "step_seconds")}
    assert (phases, timed) == ({"shallow", "stacked"}, {None, "shallow", "stacked"})
    accounted = {(row.variant, row.metric) for row in rows if row.measure == "accounting"}
    assert accounted == {
        (variant, metric) for variant in ("uniform", "stacking") for metric in ("predicted", "measured")
    }


@pytest.mark.slow
def test_the_cost_equals_that_of_uniform_training(grown: tuple[Path, Ended]) -> None:
    folder, _ = grown
    figures = {variant: record(folder, variant).figures for variant in ("uniform", "stacking")}
    assert figures["uniform"]["tokens"] == 60 * STEP_TOKENS
    assert figures["stacking"]["tokens"] > 60 * STEP_TOKENS
    assert figures["stacking"]["flops"] == pytest.approx(figures["uniform"]["flops"], rel=0.01)
    with Run.open(folder) as run:
        rows = {
            (row.unit, row.metric): row
            for row in run.store.scores("growth")
            if (row.variant, row.against) == ("stacking", "uniform")
        }
    assert rows["flops", "difference"].low is not None
    assert {"saving", "saving_at_most", "saving_at_least"} & {metric for terms, metric in rows if terms == "flops"}
    assert rows["tokens", "time_saved"].value < 1
    mean = sum(record(folder, "stacking", seed).figures["flops"] for seed in (0, 1)) / 2
    assert rows["flops", "at"].value == pytest.approx(mean)


@pytest.mark.slow
def test_variants_of_a_seed_start_from_the_same_weights(grown: tuple[Path, Ended], config: Path, texts: Path) -> None:
    """Schedules with the same first phase have the same first losses."""
    folder, _ = grown
    late = GrowthSchedule("late", DEPTH, (Phase("all", 0.5, (0, 1, 2, 3)), Phase("top", 0.5, (3,), embedding=False)))
    write_schedule(late, folder.parent / "late.yaml")
    options = ("--schedules", folder.parent / "late.yaml", "--match", "tokens", "--seeds", 2)
    growth(config, texts, folder, *options, *LONGER)
    for seed in (0, 1):
        one, other = (record(folder, variant, seed).history[0] for variant in ("uniform", "late"))
        assert one == other
    assert record(folder, "late", 0).history[0] != record(folder, "late", 1).history[0]
    with Run.open(folder) as run:
        rows = [row for row in run.store.scores("growth") if (row.variant, row.against) == ("late", "uniform")]
    assert ("loss_ratio", "tokens") in {(row.metric, row.unit) for row in rows}
    assert "flops" not in {row.unit for row in rows if row.metric == "difference"}


@pytest.mark.slow
def test_training_continues_from_a_checkpoint_or_random_weights(checkpoint: Path, texts: Path, tmp_path: Path) -> None:
    options = ("--schedules", "ramp", "--no-baseline", *SHORT)
    tuned = growth(checkpoint, texts, tmp_path / "tuned", *options)
    anew = growth(checkpoint, texts, tmp_path / "anew", *options, "--from-scratch")
    assert "from the weights of the checkpoint" in tuned.err
    assert "from random weights" in anew.err
    assert not (tmp_path / "tuned" / "uniform").exists()
    assert record(tmp_path / "anew", "ramp").recipe["from_scratch"]


def test_a_separate_text_is_held_out(config: Path, tmp_path: Path) -> None:
    folders = babylm.write(tmp_path, train=40, held_out=20)
    folder = tmp_path / "run"
    options = ("--validation", folders["dev"], "--schedules", "uniform", *SHORT)
    ended = growth(config, folders["train"], folder, *options)
    assert "note: one half of dev is used for validation, the other half for testing" in ended.err
    tokenizer = load_tokenizer(str(folder / "uniform" / "seed-0" / "model"))
    texts = (file.read_text() for file in sorted(folders["train"].iterdir()))
    room = 16 - (tokenizer.bos_token_id is not None)
    whole = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) // room for text in texts)
    assert f"train_10M: {whole:,} windows of 16 tokens for training" in ended.err


def test_importance_comes_from_a_diagnosis(config: Path, texts: Path, tmp_path: Path) -> None:
    run = _diagnosis(tmp_path / "diagnosis", (0.0, 0.4, 0.0, 0.4))
    options = ("--schedules", "importance", "--importance", run, "--no-baseline", *SHORT)
    growth(config, texts, tmp_path / "run", *options)
    schedule = record(tmp_path / "run", "importance").recipe["options"]["schedule"]
    assert [phase["trains"] for phase in schedule["phases"]] == ["1 3"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--schedules", "publishd"), "did you mean published"),
        (("--schedules", "nowhere.yaml"), "nowhere.yaml does not exist"),
        (("--schedules", "importance", "--no-baseline"), "requires --importance RUN"),
        (("--schedules", "published,permuted"), "permuted requires the schedule importance"),
        (("--importance", "run"), "--importance requires the schedule importance"),
        (("--frontier", "--no-baseline"), "--frontier requires uniform training"),
        (("--size", "published"), "--size and --model cannot be combined"),
        (
            ("--epochs", "1.74", "--frontier", "--max-epochs", "1.99"),
            "uniform@1.15 must train for at most 1.99 epochs",
        ),
        (("--steps", "5", "--epochs", "1"), "--steps and --epochs cannot be combined"),
        (("--schedules", "importance", "--importance", "nowhere"), "nowhere is not a run"),
        (("--batch-size", "2000"), "--batch-size must be at most 954"),
        (("--epochs", "2.5"), "must train for at most 2 epochs, got 2.5 "),
        (("--epochs", "2", "--schedules", "stacking"), "stacking, at the cost of uniform training, must train"),
        (("--steps", "3"), "a share of"),
        (("--max-length", "100"), "--max-length must be at most the 64 positions of the model"),
        (("--max-length", "64", "--steps", "9", "--from-scratch"), "Remove --from-scratch"),
    ],
)
def test_invalid_options_are_rejected_before_a_folder_is_made(
    config: Path, texts: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    run = tmp_path / "run"
    given = ("--max-length", "16", *options) if "--max-length" not in options else options
    assert said in refused("train", "growth", "--model", config, "--text", texts, "--run", run, *given)
    assert not run.exists()


def test_a_schedule_with_the_name_of_a_preset_is_rejected(config: Path, texts: Path, tmp_path: Path) -> None:
    write_schedule(GrowthSchedule("uniform", 4, (Phase("top", 1.0, (3,)),)), tmp_path / "mine.yaml")
    run = ("--schedules", tmp_path / "mine.yaml", "--run", tmp_path / "run", *SHORT)
    said = refused("train", "growth", "--model", config, "--text", texts, *run)
    assert "must not be that of a built-in schedule" in said
    assert not (tmp_path / "run").exists()


def _diagnosis(folder: Path, effects: tuple[float, ...]) -> Path:
    manifest = Manifest("m", None, "w", "float32", "cpu", "c", "d", 1, 1, 8, ("ablation", "curve_tokens:1"), (), 0)
    rows = [
        Score("verdict", "matters" if value else "no_effect", value, value - 0.005, value + 0.005, layer=layer)
        for layer, value in enumerate(effects)
    ]
    with Run.create(folder, manifest) as run:
        run.store.replace_scores("verdict", rows)
    return folder
