"""`layerwise evaluate --without-edges` for a run and a single model, and its errors."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from cli.command import layerwise, refused
from layerwise.data.suites import generated
from layerwise.data.suites.generated import generate_pairs as pairs_of_our_own
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.results import Manifest, Run, Score
from layerwise.results.training_record import TrainingRecord
from layerwise.stack import load
from layerwise.train import layer_mixing
from layerwise.train.methods import Options, recipe
from layerwise.train.recipe import Settings
from row_names import named
from train.tiny_models import tiny_llama

DEPTH = 3


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: generated.PARADIGMS[name] for name in ("singular_subject_verb", "article_noun")}
    monkeypatch.setattr(generated, "PARADIGMS", few)


def save_elc(folder: Path, variant: str = "elc") -> Path:
    tokenizer = train_wordpiece([pair.good for pair in pairs_of_our_own().pairs])
    torch.manual_seed(0)
    config = ElcConfig(
        variant=variant,
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=DEPTH,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=64,
    )
    ElcForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def record(variant: str, seed: int, settings: dict[str, object]) -> TrainingRecord:
    return TrainingRecord(variant, seed, "base", "data", "texts", settings, 1, 1.0, 1, 1.0, 1)


def edge_rows(run: Path) -> list[Score]:
    with Run.open(run) as opened:
        return list(opened.store.scores("edges"))


@pytest.mark.slow
def test_models_of_a_run_with_layer_weights_are_evaluated_without_edges(tmp_path: Path) -> None:
    run = tmp_path / "run"
    manifest = Manifest("m", None, "w", "float32", "cpu", "c", "h", 1, 1, 1, ("pretraining",), (), 0)
    with Run.create(run, manifest):
        pass
    for variant in ("elc", "ltg"):
        folder = save_elc(run / variant / "seed-0" / "model", variant)
        record(variant, 0, {"variant": "plain"}).write(folder)
    command = ("evaluate", run, "--limit", "8", "--without-edges")
    ended = layerwise(*command, "40%,2<-1+*<-0")
    assert ended.code == 0, ended.err
    assert "without edges: 2 conditions for 1 models" in ended.err + ended.out
    assert "pairs without edges" in ended.out
    rows = edge_rows(run)
    assert {named(row).partition(" ")[0] for row in rows} == {"elc/0"}
    assert {row.condition for row in rows} == {"40%", "2<-1+*<-0"}
    assert {row.task for row in rows} == {"all", "subject_verb_agreement", "indefinite_article"}
    again = layerwise(*command, "40%,2<-1+*<-0")
    assert again.code == 0, again.err
    assert edge_rows(run) == rows, "rows of the same settings are kept"
    other = layerwise("evaluate", run, "--limit", "9", "--without-edges", "1<-0")
    assert other.code == 0, other.err
    assert {(row.condition, row.documents) for row in edge_rows(run) if row.metric == "margin"} == {
        ("1<-0", 18),
        ("1<-0", 9),
    }


@pytest.mark.slow
def test_a_causal_model_with_an_attached_wiring_is_evaluated_without_edges(tmp_path: Path) -> None:
    model = tmp_path / "model"
    tokenizer = train_wordpiece([pair.good for pair in pairs_of_our_own().pairs])
    llama = tiny_llama()
    llama.resize_token_embeddings(len(tokenizer))
    chosen = recipe("wiring-identity", Options(Settings()), len(llama.model.layers))
    wired = layer_mixing.attach(load(llama), chosen.extension)
    with torch.no_grad():
        wired.raw[1:] += 0.2
    assert isinstance(llama, LlamaForCausalLM)
    llama.save_pretrained(model)
    tokenizer.save_pretrained(model)
    record("wiring-identity", 0, chosen.to_json()).write(model)
    ended = layerwise("evaluate", model, "--limit", "8", "--without-edges", "*<-0", "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    with Run.open(tmp_path / "run") as opened:
        assert len(opened.store.scores("alpha")) == 1 + 2 + 3 + 4
    changes = [row for row in edge_rows(tmp_path / "run") if row.metric == "margin" and row.against is None]
    assert [row.task for row in changes] == ["all", "subject_verb_agreement", "indefinite_article"]
    assert all(row.p_adjusted is not None and row.low <= row.value <= row.high for row in changes)
    assert changes[0].value != 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--without-edges", "3<0"), "edges to remove must be a percentage between 0 and 100"),
        (("--without-edges", "9<-0", "--limit", "8"), "no edge matches 9<-0; layers are 0 to 2"),
        (("--without-edges", "30%", "--limit", "7"), "--without-edges requires 8 pairs of each phenomenon, but"),
        (("--without-edges", "30%", "--minutes", "3"), "--without-edges and --minutes cannot be combined"),
        (("--without-edges", "30%", "--suite", "msgs-ours"), "--without-edges requires a suite of pairs"),
    ],
)
def test_invalid_edges_are_rejected(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    model = save_elc(tmp_path / "model")
    assert message in " ".join(refused("evaluate", model, *arguments, "--run", tmp_path / "run").split())


def test_a_model_without_layer_weights_is_rejected(tmp_path: Path) -> None:
    model = save_elc(tmp_path / "model", "ltg")
    said = " ".join(refused("evaluate", model, "--without-edges", "30%", "--limit", "8").split())
    assert "has no learned layer weights. Pass a model trained with" in said
