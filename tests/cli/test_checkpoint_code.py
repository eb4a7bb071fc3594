"""No command or function runs the code of a checkpoint or asks about it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers import BlipTextConfig

import layerwise
from cli.command import layerwise as command
from cli.command import refused
from cli.conftest import save_llama, save_texts
from cli.picture_models import save_images, save_vit
from layerwise.catalogue import VERBS
from layerwise.data.auto_classes import from_config, from_pretrained
from layerwise.data.suites.classification import ClassificationTask, LabeledText
from layerwise.errors import LayerwiseError
from layerwise.stack.checks.checkpoint_files import open_config
from layerwise.train.fine_tuning import _with_head
from layerwise.train.new_head import with_new_head
from layerwise.train.phases.random_init import random_model
from tiny_tokenizers import character_tokenizer

AUTOMATIC = (
    *("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSequenceClassification"),
    *("AutoModelForImageClassification", "AutoImageProcessor", "AutoProcessor", "AutoFeatureExtractor"),
)
MAP = {name: f"homemade.{name}" for name in AUTOMATIC} | {"AutoTokenizer": ["homemade.AutoTokenizer", None]}


def bring_code(folder: Path, file: str, **settings: object) -> Path:
    path = folder / file
    known = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(known | {"auto_map": MAP} | settings))
    (folder / "homemade.py").write_text("__import__('pathlib').Path('it-ran').touch(); raise SystemExit('it ran')")
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model` has its own configuration class, `head` one without a matching class in transformers."""
    folder = tmp_path_factory.mktemp("code")
    save_texts(folder / "texts")
    save_images(folder / "images")
    save_llama(folder / "sound")
    bring_code(save_llama(folder / "model"), "config.json", model_type="homemade")
    bring_code(folder / "model", "tokenizer_config.json", tokenizer_class="Homemade")
    bring_code(folder / "model", "preprocessor_config.json", image_processor_type="Homemade")
    shutil.copytree(folder / "model", folder / "config", ignore=shutil.ignore_patterns("*.safetensors"))
    bring_code(save_llama(folder / "llama"), "tokenizer_config.json", tokenizer_class="Homemade")
    bring_code(save_vit(folder / "vit"), "preprocessor_config.json", image_processor_type="Homemade")
    BlipTextConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2).save_pretrained(
        folder / "head"
    )
    bring_code(folder / "head", "config.json", architectures=None)
    shutil.copy(folder / "sound" / "model.safetensors", folder / "head")
    return folder


@pytest.fixture(autouse=True)
def _nobody_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    questions: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question="": questions.append(question) or "y")
    monkeypatch.chdir(tmp_path)
    yield
    assert questions == []
    assert not Path("it-ran").exists()


TEXT = ("--text", "texts")
IMAGES = ("--images", "images")
ELC = ("--variant", "elc", "--tokenizer", "llama")
ROBUST = ("train", "robust", "layershuffle", "--model")
COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", "0-3", "--model", "model"),
    "plan --from": ("plan", "--from", "0-1 1-2", "--model", "model"),
    "sweep": ("sweep", "model", *TEXT),
    "diagnose": ("diagnose", "model", *TEXT),
    **({"time": ("time", "model", "--plan", "0-2")} if "time" in VERBS else {}),
    "verify": ("verify", "model"),
    "evaluate": ("evaluate", "model", "--limit", "2"),
    "heal": ("heal", "model", "--plan", "0-2", *TEXT),
    "search": ("search", "model", "--budget", "layers=3", *TEXT),
    "save": ("save", "model", "--plan", "0-2", "--output", "out"),
    "save, two models": ("save", "model", "sound", "--plan", "a:0-1 b:2-3", "--output", "out"),
    "robustness merge": ("robustness", "merge", "model", "vit", *IMAGES),
    "robustness": ("robustness", "model", *IMAGES),
    "robustness, the images": ("robustness", "vit", *IMAGES),
    "growth": ("train", "growth", "--model", "model", *TEXT),
    "growth, a configuration": ("train", "growth", "--model", "config", *TEXT),
    "growth, from scratch": ("train", "growth", "--model", "model", "--from-scratch", *TEXT),
    "growth, its tokenizer": ("train", "growth", "--tokenizer", "llama", *TEXT),
    "robust": (*ROBUST, "model", *IMAGES),
    "robust, the images": (*ROBUST, "vit", *IMAGES),
    "robust --new-head": (*ROBUST, "vit", *IMAGES, "--new-head"),
    "serve": ("serve", "model", "--in-process"),
    "a tokenizer": ("sweep", "sound", *TEXT, "--tokenizer", "llama"),
    "save convert": ("save", "convert", "sound/model.safetensors", *ELC, "--output", "out"),
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_no_command_runs_checkpoint_code(store: Path, arguments: tuple[str, ...]) -> None:
    message = refused(*(str(store / each) if (store / each).exists() else each for each in arguments))
    assert "has remote code" in message
    assert "--trust-remote-code" in message


FUNCTIONS: dict[str, Callable[[Path], object]] = {
    "load, layers on the disk": lambda store: layerwise.load(store / "model", resident_layers=1),
    "load, a head of its own": lambda store: layerwise.load(store / "head"),
    "with_new_head, a known model": lambda store: with_new_head(str(store / "head"), ("a", "b")),
    "fine-tuning": lambda store: _with_head(str(store / "head"), TASK),
    "random_model": lambda store: random_model(
        open_config(str(store / "head")), character_tokenizer(), "the model"
    ).open(),
    "from_config": lambda store: from_config("AutoModel", from_pretrained("AutoConfig", store / "head")),
    "from_pretrained": lambda store: from_pretrained("AutoProcessor", store / "model"),
}
SAMPLE = (LabeledText("a text", None, 0),)
TASK = ClassificationTask("glue", "rte", ("yes", "no"), "accuracy", SAMPLE, SAMPLE, (LabeledText("another", None, 1),))


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_no_function_runs_checkpoint_code(store: Path, function: Callable[[Path], object]) -> None:
    with pytest.raises(LayerwiseError, match=r"has remote code.*--trust-remote-code"):
        function(store)


def test_trust_remote_code_runs_checkpoint_code(store: Path) -> None:
    with pytest.raises(SystemExit, match="it ran"):
        layerwise.load(store / "model", trust_remote_code=True)
    Path("it-ran").unlink()


def test_a_tokenizer_with_code_is_skipped_if_not_needed(store: Path) -> None:
    assert command("verify", store / "llama").code == 0
