"""`layerwise train schedule`: schedules from finished diagnoses, and rejected runs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.command import heavy_imports, layerwise, refused
from layerwise.measure.stats.verdicts import Decision
from layerwise.plan.schedule.allocation import Importance, allocation
from layerwise.results import Manifest, Run, Score
from layerwise.results.training_record import TrainingRecord
from layerwise.studies.train_growth.schedule_file import read_schedule

DIAGNOSIS = ("ablation", "curve_tokens:1500", "min_effect:0.05")
EFFECTS: tuple[tuple[Decision, float], ...] = (("matters", 0.8), ("no_effect", 0.0), ("matters", 0.2), ("matters", 0.1))
VERDICTS = [
    Score("verdict", decision, value, value - reach, value + reach, layer=layer)
    for layer, (decision, value) in enumerate(EFFECTS)
    for reach in [0.04 if decision == "no_effect" else 0.06]
]


def save_run(folder: Path, settings: tuple[str, ...] = DIAGNOSIS, rows: Sequence[Score] = ()) -> Path:
    manifest = Manifest("my-model", None, "w1", "float32", "cpu", "texts", "c1", 3, 90, 64, settings, (), 7)
    with Run.create(folder, manifest) as run:
        for measure in {row.measure for row in rows}:
            run.store.replace_scores(measure, [row for row in rows if row.measure == measure])
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return save_run(tmp_path / "run", rows=VERDICTS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "growth.yaml"


def test_a_finished_run_becomes_a_schedule(run: Path, file: Path) -> None:
    ended = layerwise("train", "schedule", run, "--output", file)
    assert ended.code == 0, ended.err
    importance = [Importance(row.value, row.low or 0.0, row.high or 0.0) for row in VERDICTS]
    # The threshold is that of the run, not the default.
    assert read_schedule(file) == allocation(importance, min_effect=0.05).schedule()
    lines = ended.out.splitlines()
    assert lines[0].startswith("layer")
    assert [line.split()[0] for line in lines[1:5]] == ["0", "1", "2", "3"]
    assert "never: its effect is at most 0.05 nats" in lines[2]
    # Parts of four: 4 for layer 0, 2 for layer 2 with a quarter of its effect, 1 for layer 3 with an eighth.
    assert "budget: 0.438 of all layer-steps" in ended.out
    assert "effects: intervals of the verdicts" in ended.out
    assert "█ learns" in ended.out
    assert lines[-1] == f"schedule: {file}"
    assert ended.err == ""


def test_the_options_of_the_schedule_are_used(run: Path, file: Path) -> None:
    ended = layerwise("train", "schedule", run, "--output", file, "--phases", "8", "--min-effect", "0.17")
    assert ended.code == 0, ended.err
    assert "in the last 8/8 of the" in ended.out
    # Of eight parts layer 2 has half, with a quarter of the effect, and 3, whose interval ends at 0.16, none.
    assert [(phase.share, phase.trains) for phase in read_schedule(file).phases] == [(0.5, (0,)), (0.5, (0, 2))]


def test_a_run_is_read_without_importing_torch(run: Path, file: Path) -> None:
    assert heavy_imports("train", "schedule", run, "--output", file) == []
    assert file.exists()


def test_a_run_without_an_ablation_names_the_command(tmp_path: Path, file: Path) -> None:
    gates = [Score("proxies", "gate", 1.0, layer=0)]
    bare = save_run(tmp_path / "bare", ("proxies", *DIAGNOSIS[1:]), gates)
    message = refused("train", "schedule", bare, "--output", file)
    assert "must include the part ablation" in message
    assert "layerwise diagnose my-model --text PATH --parts ablation" in message
    with Run.resume_or_create(bare, Run.open(bare).manifest) as run:
        run.store.replace_notes("ablation", ["the text makes 3 windows"])
    assert "but the text makes 3 windows" in refused("train", "schedule", bare, "--output", file)
    swept = save_run(tmp_path / "swept", ("painters", "leave_one_out"))
    assert "must be a diagnosis, got another run (painters, leave_one_out)" in refused(
        "train", "schedule", swept, "--output", file
    )
    assert not file.exists()


def test_a_run_with_missing_layers_is_rejected(tmp_path: Path, file: Path) -> None:
    torn = save_run(tmp_path / "torn", rows=VERDICTS[1:])
    message = refused("train", "schedule", torn, "--output", file)
    assert message.startswith(f"{torn}: ")
    assert "layer 0" in message


def test_a_training_run_is_rejected(tmp_path: Path, file: Path) -> None:
    course = save_run(tmp_path / "course", ("robustness",))
    model = course / "baseline" / "seed-0" / "model"
    model.mkdir(parents=True)
    TrainingRecord("baseline", 0, "b", "d", "texts", {}, 3, 1.0, 12, 1.0, 3).write(model)
    message = refused("train", "schedule", course, "--output", file)
    assert "got a run of layerwise train" in message
    assert f"layerwise diagnose {model} --text PATH" in message


def test_layers_without_effects_make_no_schedule(tmp_path: Path, file: Path) -> None:
    rows = [Score("verdict", "no_effect", 0.0, -0.1, 0.1, layer=layer) for layer in range(4)]
    message = refused("train", "schedule", save_run(tmp_path / "flat", rows=rows), "--output", file)
    assert "no layer has a detectable effect above 0.05 nats/token (largest: layer 0," in message
    assert not file.exists()


def test_an_existing_file_is_kept(run: Path, file: Path) -> None:
    file.write_text("mine")
    assert "already exists" in refused("train", "schedule", run, "--output", file)
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--output", "no-such-folder/growth.yaml"), "no-such-folder is not a directory"),
        (("--output", "growth.yaml", "--phases", "0"), "--phases must be at least 1"),
        ((), "needs --output FILE"),
    ],
)
def test_invalid_options_are_rejected_before_the_run_is_read(arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("train", "schedule", "no-such-run", *arguments)
