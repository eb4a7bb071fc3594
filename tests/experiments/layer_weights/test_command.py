"""`layerwise diagnose layer-weights`: a model is measured edge by edge, cut, written and opened again; and refusals."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

from cli.command import Ended, layerwise, refused
from layerwise import diagnose
from layerwise.data.suites import generated_pairs
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.data.vision.digits import digits
from layerwise.experiments.files import read_experiment
from layerwise.experiments.layer_weights import phenomena
from layerwise.experiments.layer_weights.models import EDGES
from layerwise.experiments.layer_weights.run import weight_map
from layerwise.experiments.reporter import Silent
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.models.elc.wiring import ElcWiring
from layerwise.plan import LayerWeights
from layerwise.results import Manifest, Run
from layerwise.results.training_record import TrainingRecord
from layerwise.stack import load
from layerwise.train import layer_mixing
from layerwise.train.load_trained import open_trained, saved_edges
from layerwise.train.methods import Options, recipe
from layerwise.train.recipe import Settings
from row_names import named

DEPTH = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of digits with random weights and a random free wiring, as a training would have left it."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=8,
        patch_size=4,
        num_channels=1,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=DEPTH,
        num_attention_heads=2,
        num_labels=10,
        initializer_range=0.3,
    )
    vit = ViTForImageClassification(config)
    chosen = recipe("wiring-identity", Options(Settings()), DEPTH)
    found = layer_mixing.attach(load(vit), chosen.variant)
    with torch.no_grad():
        found.raw[1:] += 0.2 * torch.randn(DEPTH, DEPTH + 1)
    vit.save_pretrained(folder)
    data = digits().digest
    TrainingRecord("wiring-identity", 0, "base", data, "digits", chosen.to_json(), 1, 1.0, 1, 1.0, 1).write(folder)
    return folder


@pytest.mark.slow
def test_a_model_is_ranked_cut_and_written(model: Path, tmp_path: Path) -> None:
    ended = layerwise(
        "diagnose", "layer-weights", model, "--keep", "0.5", "--output", tmp_path / "sparse", "--run", tmp_path / "run"
    )
    assert ended.code == 0, ended.err
    assert "10 edges, 4 live states" in ended.out
    assert "rank correlation" in ended.out
    assert "kept 5 edges (50%)" in ended.out
    before, after = saved_edges(model), saved_edges(tmp_path / "sparse")
    assert before is not None
    assert after is not None
    assert (len(before), len(after)) == (10, 5)
    assert set(after) < set(before)
    written = LayerWeights.from_json((tmp_path / "sparse" / EDGES).read_text())
    assert set(written) == set(after) == set(open_trained(tmp_path / "sparse").wiring.edges())  # type: ignore[union-attr]
    with Run.open(tmp_path / "run") as run:
        edges, alpha = run.store.scores("edges"), run.store.scores("alpha")
    assert {row.condition or named(row) for row in edges} >= {"out<-0", "1<-1", "all", "pruned"}
    assert len(alpha) == 1 + 2 + 3 + 4
    assert f"report: {tmp_path / 'run' / 'report.html'}" in ended.out
    file = tmp_path / "layer-weights.yaml"
    file.write_text(
        f"experiment: diagnose layer-weights\nmodel: {model}\nkeep: 0.5\noutput: {tmp_path / 'sparse'}\n"
        f"run: {tmp_path / 'run'}\n"
    )
    assert read_experiment(file) == read_experiment(tmp_path / "run")
    assert "is there already; choose another --output" in refused("run", file)
    more = ("--keep", "0.5", "--output", tmp_path / "plan.json", "--run", tmp_path / "run")
    again = layerwise("diagnose", "layer-weights", model, *more)
    assert again.code == 0, again.err
    assert set(LayerWeights.from_json((tmp_path / "plan.json").read_text())) == set(after)


def test_a_dry_run_prints_the_cost_and_makes_no_folder(model: Path, tmp_path: Path) -> None:
    ended = layerwise("diagnose", "layer-weights", model, "--keep", "0.5", "--run", tmp_path / "run", "--dry-run")
    assert ended.code == 0, ended.err
    assert "cost: 10 passes over the held-out examples, one for every edge, and 22 for what a cut leaves" in ended.out
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_every_model_of_a_run_is_measured_into_it(model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    manifest = Manifest("demo-vit", None, "w", "float32", "cpu", "digits", "h", 1, 1, 1, ("robustness",), (), 0)
    with Run.create(run, manifest):
        pass
    for seed in range(2):
        shutil.copytree(model, run / "wiring-identity" / f"seed-{seed}" / "model")
    result = diagnose.layer_weights(run, reporter=Silent())
    assert result.folder == run
    table = result.table("edges")
    assert set(zip(table["arm"], table["seed"], strict=True)) == {("wiring-identity", 0), ("wiring-identity", 1)}
    message = refused("diagnose", "layer-weights", run, "--keep", "0.5", "--output", tmp_path / "sparse")
    assert "holds 2 models with learned layer weights, and one is written" in message
    assert "leave out --run" in refused("diagnose", "layer-weights", run, "--run", tmp_path / "other")
    assert not (tmp_path / "sparse").exists()


def test_what_cannot_be_measured_is_refused(model: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(
        plain
    )
    assert "has no learned layer weights" in refused("diagnose", "layer-weights", plain)
    # The command of the advice is another verb's, whose model is a flag.
    nowhere = refused("diagnose", "layer-weights", tmp_path / "nowhere")
    assert "there is no folder" in nowhere
    assert "wiring-identity --model MODEL`" in nowhere
    assert "give --keep SHARE or --tolerance NATS" in refused(
        "diagnose", "layer-weights", model, "--output", tmp_path / "sparse"
    )
    assert "--set rounds does nothing here: it is read with --keep or --tolerance" in refused(
        "diagnose", "layer-weights", model, "--set", "rounds=2"
    )
    ended = layerwise("diagnose", "layer-weights", model, "--limit", "60", "--run", tmp_path / "run")
    assert (ended.code, "with other splits than these" in ended.err) == (2, True)


def test_a_deep_wiring_is_drawn_without_numbers() -> None:
    drawn = str(weight_map(LayerWeights.identity(20)))
    assert drawn.splitlines()[-1] == " 19 " + "·" * 19 + "█"


WORDS = (
    ("the red fox", "a grey hen", "one old owl", "my small cat", "that tall man"),
    ("sees", "hears", "likes", "finds"),
)


@pytest.fixture(scope="module")
def elc(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An ELC-BERT with random weights and its tokenizer, and a folder of texts."""
    home = tmp_path_factory.mktemp("elc")
    chance = Random(0)
    who, does = WORDS
    texts = [
        " ".join(f"{chance.choice(who)} {chance.choice(does)} {chance.choice(who)}.".capitalize() for _ in range(12))
        for _ in range(16)
    ]
    (home / "text").mkdir()
    for number, text in enumerate(texts):
        (home / "text" / f"{number}.txt").write_text(text)
    tokenizer = train_wordpiece(texts, minimum_frequency=2)
    torch.manual_seed(0)
    config = ElcConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=DEPTH,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=128,
    )
    ElcForMaskedLM(config).save_pretrained(home / "model")
    tokenizer.save_pretrained(home / "model")
    return home / "model", home / "text"


@pytest.mark.slow
def test_an_elc_bert_is_asked_on_text_and_keeps_its_cuts(elc: tuple[Path, Path], tmp_path: Path) -> None:
    model, text = elc
    assert "a text that the model was not trained on is needed" in _message(
        layerwise("diagnose", "layer-weights", model)
    )
    cut = ("--keep", "0.6", "--output", tmp_path / "sparse", "--run", tmp_path / "run")
    ended = layerwise("diagnose", "layer-weights", model, "--text", text, *cut)
    assert ended.code == 0, ended.err
    assert "6 edges, 3 live states" in ended.out
    sparse = ElcForMaskedLM.from_pretrained(tmp_path / "sparse")
    written = LayerWeights.from_json((tmp_path / "sparse" / EDGES).read_text())
    assert len(written) == 4
    assert set(ElcWiring(sparse).edges()) == set(written)
    weights = sparse.layer_weights()
    assert weights is not None
    torch.testing.assert_close(weights.detach(), torch.tensor(written.matrix()))


def _message(ended: Ended) -> str:
    assert ended.code == 2
    return ended.err


def test_suites_that_edges_cannot_be_cut_for_are_refused(elc: tuple[Path, Path]) -> None:
    model, text = elc
    assert "did you mean blimp" in refused("diagnose", "layer-weights", model, "--suite", "blmp")
    assert "give the folder that holds its files" in refused("diagnose", "layer-weights", model, "--suite", "blimp")
    assert "--keep does nothing here" in refused(
        "diagnose", "layer-weights", model, "--suite", "pairs", "--keep", "0.5"
    )
    assert "--text does nothing here" in refused("diagnose", "layer-weights", model, "--suite", "pairs", "--text", text)
    few = ("--suite", "pairs", "--limit", "4", "--run", model.parent / "few", "--dry-run")
    shown = refused("diagnose", "layer-weights", model, *few)
    assert "indefinite_article has 8 pairs" in shown
    assert "use --limit 16 or more" in shown
    assert not (model.parent / "few").exists()


@pytest.mark.slow
def test_edges_are_cut_for_every_phenomenon_of_pairs_and_of_mixed_signals(
    elc: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = elc
    kept = {name: generated_pairs.PARADIGMS[name] for name in ("singular_subject_verb", "article_noun")}
    monkeypatch.setattr(generated_pairs, "PARADIGMS", kept)
    monkeypatch.setattr(phenomena, "FINE_TUNING", replace(phenomena.FINE_TUNING, epochs=1, training_limit=16))
    tasks = "control main_verb,control length"
    ended = layerwise(
        "diagnose",
        "layer-weights",
        model,
        "--suite",
        "pairs,msgs-ours",
        "--tasks",
        tasks,
        "--limit",
        "16",
        "--run",
        tmp_path / "run",
    )
    assert ended.code == 0, ended.err
    with Run.open(tmp_path / "run") as run:
        rows = run.store.scores("edge_phenomena")
    effects = [row for row in rows if row.metric == "effect"]
    assert {(row.condition, row.task) for row in effects} == {
        ("pairs", "subject_verb_agreement"),
        ("pairs", "indefinite_article"),
        ("msgs-ours", "main_verb"),
        ("msgs-ours", "length"),
    }
    assert {named(row) for row in effects} == {"1<-0", "1<-1", "2<-0", "2<-1", "2<-2"}
    assert all(row.documents == 8 and row.p is not None for row in effects)
    assert {named(row) for row in rows if row.metric == "contrast"} == {named(row) for row in effects}
    assert "pairs: " in ended.out
    assert "edges x 2 phenomena have an effect that fresh units confirm" in ended.out
