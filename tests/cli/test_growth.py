"""`layerwise train growth` and `layerwise study growth` as a user meets them: what they leave, and what they refuse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, LlamaConfig

from cli.command import Ended, layerwise, refused
from data import babylm
from layerwise.cli import growth as command
from layerwise.cli.growth import PASSES
from layerwise.data.bytepair import train_bytepair
from layerwise.data.tokenizer import load_tokenizer
from layerwise.measure.frontier import COSTS
from layerwise.plan.growth import PRESETS, GrowthSchedule, Phase
from layerwise.plan.growth.allocation import Importance
from layerwise.results import Manifest, Run, Score
from layerwise.results.pedigree import FILE, Pedigree
from layerwise.train.growth import conduct
from layerwise.train.growth.pupil import FAMILY
from layerwise.train.growth.schedule_file import read_schedule, write_schedule
from layerwise.train.growth.study import ARMS, PILOT

WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")
DEPTH = 4
SHORT = ("--steps", "8", "--batch", "4", "--length", "16", "--checks", "1", "--device", "cpu")
STEP_TOKENS = 4 * 16


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty documents of twenty lines and more."""
    folder = tmp_path_factory.mktemp("texts")
    documents = ["\n".join(WORDS[(n + k) % 4] for k in range(20 + n)) for n in range(40)]
    (folder / "words.txt").write_text("\n<|endoftext|>\n".join(documents) + "\n")
    return folder


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a Llama of four layers, without weights and without a tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "small"
    own = LlamaConfig(
        vocab_size=280, hidden_size=16, intermediate_size=24, num_hidden_layers=DEPTH, num_attention_heads=2,
        max_position_embeddings=64, use_cache=False, tie_word_embeddings=False,
    )  # fmt: skip
    own.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(config: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights for that configuration, and a tokenizer beside them."""
    folder = tmp_path_factory.mktemp("models") / "trained"
    AutoModelForCausalLM.from_config(LlamaConfig.from_pretrained(config)).save_pretrained(folder)
    train_bytepair([(texts / "words.txt").read_text()], 280).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def grown(config: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("runs") / "grown"
    ended = layerwise(
        "train", "growth", "--model", config, "--text", texts, "--schedule", "stacking", "--seeds", "2",
        "--run", folder, *SHORT[:1], "60", *SHORT[2:],
    )  # fmt: skip
    assert ended.code == 0, ended.err
    return folder, ended


# -- train growth


def test_it_says_what_grows_from_what_and_what_became_of_it(grown: tuple[Path, Ended], config: Path) -> None:
    folder, ended = grown
    assert f"{config.name}: 4 layers, cpu, from random weights" in ended.err
    assert "windows of 16 tokens to train" in ended.err
    assert "uniform/1: 60 steps in" in ended.err
    assert "stacking/1: " in ended.err
    assert "At equal FLOPs" in ended.out
    assert ended.out.splitlines()[-1] == f"report: {folder}/report.html"


def test_it_leaves_models_and_rows(grown: tuple[Path, Ended]) -> None:
    folder, _ = grown
    AutoModelForCausalLM.from_pretrained(folder / "stacking" / "seed-1" / "model")
    with Run.open(folder) as run:
        rows = run.store.scores()
        assert run.manifest.families == (FAMILY,)
    held_out = {row.subject for row in rows if row.measure == "held_out"}
    assert held_out == {"uniform", "uniform/0", "uniform/1", "stacking", "stacking/0", "stacking/1"}
    metrics = {row.metric for row in rows if (row.measure, row.subject, row.task) == ("training", "stacking/0", "all")}
    assert {"tokens", "flops", "step_seconds", "peak_bytes", "parameters"} <= metrics
    phases = {row.task for row in rows if row.measure == "schedule" and row.subject == "stacking"}
    assert {task.partition(" ")[2] for task in phases} == {"shallow", "stacked"}
    accounted = {(row.subject, row.metric) for row in rows if row.measure == "accounting"}
    assert accounted == {(arm, metric) for arm in ("uniform", "stacking") for metric in ("predicted", "measured")}


def test_it_spends_what_uniform_spends(grown: tuple[Path, Ended]) -> None:
    folder, _ = grown
    figures = {arm: _pedigree(folder, arm).figures for arm in ("uniform", "stacking")}
    assert figures["uniform"]["tokens"] == 60 * STEP_TOKENS
    assert figures["stacking"]["tokens"] > 60 * STEP_TOKENS
    assert figures["stacking"]["flops"] == pytest.approx(figures["uniform"]["flops"], rel=0.01)
    with Run.open(folder) as run:
        rows = {
            (row.task, row.metric): row for row in run.store.scores("growth") if row.subject == "stacking - uniform"
        }
    assert rows["flops", "difference"].low is not None
    assert ("tokens", "difference") not in rows, "tokens did not come out equal"
    mean = sum(_pedigree(folder, "stacking", seed).figures["flops"] for seed in (0, 1)) / 2
    assert rows["flops", "at"].value == pytest.approx(mean)


@pytest.mark.slow
def test_arms_of_a_seed_begin_from_the_same_weights(grown: tuple[Path, Ended], config: Path, texts: Path) -> None:
    """Seen in the first loss that is noted: uniform and a schedule whose first phase is uniform's have the same."""
    folder, _ = grown
    late = GrowthSchedule("late", DEPTH, (Phase("all", 0.5, (0, 1, 2, 3)), Phase("top", 0.5, (3,), embedding=False)))
    write_schedule(late, folder.parent / "late.yaml")
    ended = layerwise(
        "train", "growth", "--model", config, "--text", texts, "--schedule", folder.parent / "late.yaml",
        "--equal", "tokens", "--seeds", "2", "--run", folder, *SHORT[:1], "60", *SHORT[2:],
    )  # fmt: skip
    assert ended.code == 0, ended.err
    for seed in (0, 1):
        one, other = (_pedigree(folder, arm, seed).history[0] for arm in ("uniform", "late"))
        assert one == other
    assert _pedigree(folder, "late", 0).history[0] != _pedigree(folder, "late", 1).history[0]
    with Run.open(folder) as run:
        terms = {row.task for row in run.store.scores("growth") if row.subject == "late - uniform"}
    assert "tokens" in terms
    assert "flops" not in terms


def test_the_same_command_computes_nothing_again(grown: tuple[Path, Ended], config: Path, texts: Path) -> None:
    folder, _ = grown
    times = {path: path.stat().st_mtime_ns for path in folder.glob("*/seed-*/model/*")}
    with Run.open(folder) as run:
        before = run.store.scores("held_out")
    ended = layerwise(
        "train", "growth", "--model", config, "--text", texts, "--schedule", "stacking", "--seeds", "2",
        "--run", folder, *SHORT[:1], "60", *SHORT[2:],
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "steps in" not in ended.err
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/seed-*/model/*")} == times
    with Run.open(folder) as run:
        assert run.store.scores("held_out") == before


@pytest.mark.slow
def test_other_steps_are_another_training_unless_it_is_begun_anew(config: Path, texts: Path, tmp_path: Path) -> None:
    once = ("train", "growth", "--model", config, "--text", texts, "--schedule", "uniform", "--run", tmp_path / "run")
    assert layerwise(*once, *SHORT).code == 0
    longer = ("--steps", "9", *SHORT[2:])
    assert "its steps is 8, and 9 was asked for" in refused(*once, *longer)
    ended = layerwise(*once, *longer, "--fresh")
    assert ended.code == 0, ended.err
    assert _pedigree(tmp_path / "run", "uniform").steps == 9


@pytest.mark.slow
def test_a_checkpoint_goes_on_from_its_weights_unless_they_are_drawn_anew(
    checkpoint: Path, texts: Path, tmp_path: Path
) -> None:
    once = ("train", "growth", "--model", checkpoint, "--text", texts, "--schedule", "ramp", "--alone", *SHORT)
    tuned = layerwise(*once, "--run", tmp_path / "tuned")
    anew = layerwise(*once, "--from-scratch", "--run", tmp_path / "anew")
    assert (tuned.code, anew.code) == (0, 0)
    assert "from its own weights" in tuned.err
    assert "from random weights" in anew.err
    assert not (tmp_path / "tuned" / "uniform").exists()
    assert _pedigree(tmp_path / "anew", "ramp").recipe["from_scratch"]


@pytest.mark.slow
def test_equal_seconds_are_timed_once_and_kept(
    config: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from layerwise.cli import growth_course

    monkeypatch.setattr(growth_course, "phase_slowness", lambda *_: (0.4, 0.8))
    once = ("train", "growth", "--model", config, "--text", texts, "--schedule", "stacking", "--equal", "seconds",
            "--run", tmp_path / "run", *SHORT)  # fmt: skip
    assert layerwise(*once).code == 0
    assert _pedigree(tmp_path / "run", "stacking").steps == 12, "8 / (0.4 / 3 + 0.8 * 2 / 3)"
    monkeypatch.setattr(growth_course, "phase_slowness", lambda *_: (1.0, 1.0))
    assert layerwise(*once).code == 0, "another timing must not make it another training"
    assert _pedigree(tmp_path / "run", "stacking").steps == 12


def test_a_schedule_is_explained_with_its_cost_and_nothing_is_trained(
    config: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = layerwise(
        "train", "growth", "--model", config, "--text", texts, "--schedule", "freezing", "--explain", "--steps", "40",
        "--batch", "4", "--length", "16",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "freezing, for 4 layers:" in ended.out
    assert "from layer 3, 16.7 % of the steps: layer 3 and the head learn" in ended.out
    assert "█ learns" in ended.out
    assert "of 64 tokens" in ended.out
    assert "uniform takes 40 steps" in ended.out
    assert "(equal flops)" in ended.out
    assert list(tmp_path.iterdir()) == []


def test_a_text_of_its_own_is_held_out_and_nothing_else_is(config: Path, tmp_path: Path) -> None:
    folders = babylm.write(tmp_path, train=40, held_out=20)
    place = tmp_path / "run"
    ended = layerwise(
        "train", "growth", "--model", config, "--text", folders["train"], "--validation", folders["dev"], "--schedule",
        "uniform", *SHORT, "--run", place,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "note: one half of dev is looked at on the way, the other half is reported" in ended.err
    tokenizer = load_tokenizer(str(place / "uniform" / "seed-0" / "model"))
    texts = (file.read_text() for file in sorted(folders["train"].iterdir()))
    room = 16 - (tokenizer.bos_token_id is not None)
    whole = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) // room for text in texts)
    assert f"train_10M: {whole:,} windows of 16 tokens to train" in ended.err


def test_importance_comes_from_a_diagnosis(config: Path, texts: Path, tmp_path: Path) -> None:
    """Layers 1 and 3 matter by planted verdicts, and they alone learn."""
    run = _diagnosis(tmp_path / "diagnosis", (0.0, 0.4, 0.0, 0.4))
    ended = layerwise(
        "train", "growth", "--model", config, "--text", texts, "--schedule", "importance", "--importance", run,
        "--alone", "--run", tmp_path / "run", *SHORT,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    schedule = _pedigree(tmp_path / "run", "importance").recipe["growth"]["schedule"]
    assert [phase["trains"] for phase in schedule["phases"]] == ["1 3"]


# -- what it refuses


def test_names_in_the_help_are_those_of_the_code() -> None:
    shown = layerwise("train", "growth", "--help").out
    assert all(name in shown for name in PRESETS)
    assert f"[default: {PASSES}]" in shown
    assert all(name in layerwise("study", "growth", "--help").out for name in ARMS)
    assert set(command.Terms.__args__) == set(COSTS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--schedule", "publishd"), "did you mean published"),
        (("--schedule", "nowhere.yaml"), "nowhere.yaml: there is no such file"),
        (("--schedule", "importance"), "diagnose a model of the same depth first"),
        (("--importance", "run"), "--importance is for --schedule importance"),
        (("--steps", "5", "--epochs", "1"), "give one of them"),
        (("--explain", "--equal", "seconds"), "--explain trains nothing"),
        (("--schedule", "importance", "--importance", "nowhere"), "nowhere is not a run"),
        (("--steps", "8", "--batch", "1000"), "would read the text"),
        (("--batch", "2000"), "fewer than a batch of 2,000"),
        (("--epochs", "2.5"), "would read the text 2.5 times"),
        (("--epochs", "2", "--schedule", "stacking"), "stacking, for the cost of uniform, would read the text"),
        (("--epochs", "0"), "write a number above 0"),
        (("--steps", "3"), "its share of"),
        (("--length", "100"), "the model has 64 positions"),
        (("--length", "64", "--steps", "9", "--from-scratch"), "leave --from-scratch out"),
        (("--set", "rate"), "--set takes NAME=VALUE"),
        (("--tokenizer", "/nowhere"), "no tokenizer could be loaded from /nowhere"),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_folder(
    config: Path, texts: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    run = tmp_path / "run"
    given = ("--length", "16", *options) if "--length" not in options else options
    assert said in refused("train", "growth", "--model", config, "--text", texts, "--run", run, *given)
    assert not run.exists()


def test_a_schedule_for_another_depth_is_refused(config: Path, texts: Path, tmp_path: Path) -> None:
    write_schedule(GrowthSchedule("deep", 6, (Phase("all", 1.0, tuple(range(6))),)), tmp_path / "deep.yaml")
    said = refused(
        "train", "growth", "--model", config, "--text", texts, "--schedule", tmp_path / "deep.yaml", "--run",
        tmp_path / "run", *SHORT,
    )  # fmt: skip
    assert "the schedule deep is for a model of 6 layers, and this one has 4" in said
    assert not (tmp_path / "run").exists()


def test_a_file_may_not_take_the_name_of_a_preset_that_it_is_not(config: Path, texts: Path, tmp_path: Path) -> None:
    write_schedule(GrowthSchedule("uniform", 4, (Phase("top", 1.0, (3,)),)), tmp_path / "mine.yaml")
    said = refused("train", "growth", "--model", config, "--text", texts, "--schedule", tmp_path / "mine.yaml", *SHORT)
    assert "calls itself uniform, which is a preset of another kind" in said


def test_layers_do_not_grow_in_over_a_checkpoint(checkpoint: Path, texts: Path, tmp_path: Path) -> None:
    said = refused(
        "train", "growth", "--model", checkpoint, "--text", texts, "--schedule", "stacking", "--run",
        tmp_path / "run", *SHORT,
    )  # fmt: skip
    assert "in stacking layers grow in (phase shallow)" in said
    assert not (tmp_path / "run").exists()


def test_a_phase_that_trains_one_of_two_tied_weights_is_refused(texts: Path, tmp_path: Path) -> None:
    tied = LlamaConfig(
        vocab_size=280, hidden_size=16, intermediate_size=24, num_hidden_layers=DEPTH, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=True,
    )  # fmt: skip
    tied.save_pretrained(tmp_path / "tied")
    said = refused(
        "train", "growth", "--model", tmp_path / "tied", "--text", texts, "--schedule", "freezing", "--run",
        tmp_path / "run", *SHORT,
    )  # fmt: skip
    assert "train both or neither" in said
    assert not (tmp_path / "run").exists()


def test_documents_shorter_than_a_window_are_refused_with_the_length_that_fits(config: Path, tmp_path: Path) -> None:
    (tmp_path / "short.jsonl").write_text("".join(f'{{"text": "A dog ran to {n} old cats."}}\n' for n in range(30)))
    said = refused("train", "growth", "--model", config, "--text", tmp_path, "--length", "64")
    assert "no document to train on has 64 tokens" in said
    assert "use --length" in said


def test_other_methods_point_to_it() -> None:
    assert "layerwise train growth" in refused("train", "growth,layershuffle", "--model", "demo-vit")
    assert "did you mean growth" in refused("train", "grwth", "--model", "demo-vit")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--arms", "publishd"), "did you mean published"),
        (("--arms", "permuted"), "permuted is made from the schedule of importance"),
        (("--rates", "fast"), "--rates takes numbers above 0"),
        (("--rates", "0"), "--rates takes numbers above 0"),
        (("--steps", "5", "--epochs", "1"), "give one of them"),
        (("--steps", "3"), "its share of"),
        (("--epochs", "1.5"), "the longest training, would read the text"),
        (("--seeds", "1001"), "less than or equal to 1000"),
    ],
)
def test_a_study_that_cannot_be_is_refused_before_there_is_a_folder(
    config: Path, texts: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    run = tmp_path / "run"
    assert said in refused(
        "study", "growth", "--model", config, "--text", texts, "--length", "16", "--run", run, *options
    )
    assert not run.exists()


def test_a_study_is_not_for_several_processes(config: Path, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "start it without torchrun" in refused("study", "growth", "--model", config, "--text", texts, *SHORT[2:])


# -- study growth


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer 2 matters most, layer 0 not at all; few held-out windows."""
    effects = (0.0, 0.1, 0.4, 0.2)
    found = tuple(Importance(effect, effect - 0.001, effect + 0.001) for effect in effects)
    monkeypatch.setattr(conduct, "measured_importance", lambda *args, **options: found)


STUDY = ("study", "growth", "--batch", "4", "--length", "16", "--checks", "1", "--device", "cpu",
         "--rates", "1e-3,4e-3", "--pilots", "2", "--seeds", "2")  # fmt: skip


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_study_answers_with_its_controls_and_goes_on_where_it_was(
    config: Path, texts: Path, tmp_path: Path, planted: None
) -> None:
    folder = tmp_path / "study"
    command = (*STUDY, "--steps", "100", "--model", config, "--text", texts, "--run", folder)
    ended = layerwise(*command)
    assert ended.code == 0, ended.err
    assert (
        "8 arms (uniform, published, importance, permuted, reversed, random, stacking, ramp), 2 seeds each" in ended.err
    )
    assert "2 seed(s): intervals are over seeds" in ended.err
    assert "Does training where layers need it help? At equal FLOPs, " in ended.out
    assert "over 2 seeds" in ended.out
    with Run.open(folder) as run:
        rows, notes = run.store.scores(), [note.text for note in run.store.notes("growth")]
    _check_rows(rows)
    _check_budgets(folder)
    assert any("not counted as a cost of the schedule importance" in note for note in notes)
    assert read_schedule(folder / "importance.yaml").phases[-1].trains == (1, 2, 3)

    # Killed in the middle of a training: one model is gone, and what remains of it is a claim without a checkpoint.
    lost = folder / "ramp" / "seed-1"
    for path in sorted((lost / "model").iterdir()):
        path.unlink()
    times = {path: path.stat().st_mtime_ns for path in folder.glob(f"**/model/{FILE}")}
    again = layerwise(*command)
    assert again.code == 0, again.err
    assert next(line for line in again.err.splitlines() if "steps in" in line).startswith("ramp/1: ")
    assert {path: path.stat().st_mtime_ns for path in times} == times
    with Run.open(folder) as run:
        unchanged = ("rates", "schedule", "held_out")
        assert [row for row in run.store.scores() if row.measure in unchanged] == [
            row for row in rows if row.measure in unchanged
        ]


def _check_rows(rows: list[Score]) -> None:
    pairs = {(row.subject, row.task) for row in rows if row.measure == "growth" and row.metric == "difference"}
    others = [arm for arm in ARMS if arm != "uniform"]
    assert {(f"{arm} - uniform", terms) for arm in others for terms in ("tokens", "flops")} <= pairs
    assert {(f"importance - {control}", "flops") for control in ("permuted", "reversed", "random")} <= pairs
    assert {row.subject for row in rows if row.measure == "rates"} == {"uniform", "published", "importance"}
    assert sum(row.metric == "chosen" for row in rows) == 3
    for arm in ("uniform", "published", "importance"):
        tried = [row for row in rows if (row.measure, row.subject, row.metric) == ("rates", arm, "nll")]
        assert 3 <= len(tried) <= 6, "the better of two rates is at an end, so that a third is tried, and perhaps more"
    lengths = {row.subject for row in rows if row.measure == "held_out" and row.subject.startswith("uniform@")}
    assert any(subject.startswith("uniform@0.8") for subject in lengths)
    assert {row.subject for row in rows if row.measure == "schedule"} == set(ARMS)
    skipped = [row for row in rows if (row.measure, row.metric) == ("importance", "skip")]
    assert {row.subject for row in skipped} == {str(layer) for layer in range(DEPTH)}
    assert not [row for row in rows if str(PILOT) in row.subject], "the pilot is no arm"


def _check_budgets(folder: Path) -> None:
    """Every arm's operations are within 1 % of uniform's with the same seed."""
    for seed in (0, 1):
        whole = _pedigree(folder, "uniform", seed).figures["flops"]
        spent = {arm: _pedigree(folder, arm, seed).figures["flops"] / whole for arm in ARMS}
        assert all(abs(share - 1) <= 0.01 for share in spent.values()), spent


@pytest.mark.slow
def test_a_trained_model_is_taken_to_a_new_domain_without_stacking(
    checkpoint: Path, texts: Path, tmp_path: Path, planted: None
) -> None:
    folder = tmp_path / "study"
    ended = layerwise(
        *STUDY[:-1], "1", "--steps", "40", "--model", checkpoint, "--text", texts, "--run", folder, "--arms",
        "importance,permuted,stacking",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "stacking is left out: its layers would grow in over weights that are trained already" in ended.err
    assert "from its own weights" in ended.err
    assert not (folder / "stacking").exists()
    rates = {
        arm: _pedigree(folder, arm).recipe["settings"]["learning_rate"] for arm in ("uniform", "importance", "permuted")
    }
    assert rates["importance"] == rates["permuted"]


@pytest.mark.slow
def test_a_study_without_importance_goes_on_without_its_controls(config: Path, texts: Path, tmp_path: Path) -> None:
    """After a step or two of training no layer has an effect of a tenth of a nat that could be detected."""
    folder = tmp_path / "study"
    ended = layerwise(
        "study", "growth", "--model", config, "--text", texts, "--run", folder, "--steps", "8", "--batch", "4",
        "--length", "16", "--checks", "1", "--device", "cpu", "--rates", "1e-6", "--seeds", "1", "--arms",
        "importance,permuted,ramp",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "importance and its controls are left out: no layer has an effect" in ended.err
    assert not (folder / "importance").exists()
    assert (folder / "ramp" / "seed-0" / "model" / FILE).is_file()


@pytest.mark.slow
def test_importance_is_measured_again_where_another_rate_is_the_best(
    config: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuple(Importance(effect, effect - 0.001, effect + 0.001) for effect in (0.0, 0.1, 0.4, 0.2))
    asked: list[object] = []
    monkeypatch.setattr(conduct, "measured_importance", lambda *args, **options: asked.append(args) or found)
    folder = tmp_path / "study"
    once = ("study", "growth", "--model", config, "--text", texts, "--run", folder, "--steps", "40", "--batch", "4",
            "--length", "16", "--checks", "1", "--device", "cpu", "--seeds", "1", "--arms", "importance",
            "--rates")  # fmt: skip
    for rate, times in (("1e-3", 1), ("1e-3", 1), ("4e-3", 2)):
        if times == 2:  # as a study that was stopped before its arms
            shutil.rmtree(folder / "importance")
            for place in folder.glob("uniform*"):
                shutil.rmtree(place)
        ended = layerwise(*once, rate)
        assert ended.code == 0, ended.err
        assert len(asked) == times
    with Run.open(folder) as run:
        assert [row.value for row in run.store.scores("importance", metric="learning_rate")] == [4e-3]


# -- helpers


def _pedigree(folder: Path, arm: str, seed: int = 0) -> Pedigree:
    found = Pedigree.read(folder / arm / f"seed-{seed}" / "model")
    assert found is not None
    return found


def _diagnosis(folder: Path, effects: tuple[float, ...]) -> Path:
    """A run as a diagnosis leaves it, with the verdicts on these effects and nothing else."""
    manifest = Manifest("m", None, "w", "float32", "cpu", "c", "d", 1, 1, 8, ("ablation", "curve_tokens:1"), (), 0)
    rows = [
        Score("verdict", str(layer), "all", "matters" if value else "no_effect", value, value - 0.01, value + 0.01)
        for layer, value in enumerate(effects)
    ]
    with Run.create(folder, manifest) as run:
        run.store.replace_scores("verdict", rows)
    return folder
