"""GGUF files and folders: the same numbers both ways."""

import json
import re
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from checkpoint.gguf_models import CAUSAL, write_causal, write_llama
from checkpoint.test_gguf_save import contents
from cli.command import layerwise
from contracts.specimen import build
from contracts.zoo import SUPPORTED
from layerwise.checkpoint import save
from layerwise.checkpoint.card import write_card
from layerwise.errors import CheckpointError, LayerwiseError, UnsupportedModelError
from layerwise.gguf import GGUFFile
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from tier import first_fast

pytest.importorskip("gguf", reason="needs the package gguf: pip install 'layerwise[gguf]'")

TOKENS = torch.arange(40, 64)[None]


def folder_of(stack: Stack, plan: str, folder: Path, *, trained: str = "") -> Path:
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in stack.model.named_parameters():
            if trained and re.search(trained, name):
                parameter += 0.02 * torch.randn(parameter.shape, generator=draw)
    save(stack, plan, folder)
    return folder


def logits(stack: Stack) -> torch.Tensor:
    with torch.inference_mode():
        made: Any = stack.model(TOKENS).logits
    return made


@pytest.mark.parametrize("architecture", first_fast(CAUSAL, 2))
def test_a_folder_comes_back_as_it_is(architecture: str, tmp_path: Path) -> None:
    """Every parameter is equal after transformers' conversion; tied heads stay tied."""
    file = write_causal(tmp_path / "a.gguf", architecture, "F32")
    stack = load(file)
    untrained = logits(stack)
    folder = folder_of(stack, "0-2", tmp_path / "b", trained=".")
    save({"a": file, "b": folder}, "b:0-2", tmp_path / "out.gguf")
    torch.testing.assert_close(logits(load(tmp_path / "out.gguf")), logits(stack), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(logits(stack), untrained, atol=1e-3)
    before, after = contents(GGUFFile.open(file)), contents(GGUFFile.open(tmp_path / "out.gguf"))
    assert {name: each[:2] for name, each in after.items()} == {name: each[:2] for name, each in before.items()}


def test_layers_of_the_file_and_of_a_folder_stand_side_by_side(tmp_path: Path) -> None:
    """Layers of the file keep their bytes; layers of the folder get the file's types."""
    file = write_llama(tmp_path / "a.gguf", 3, kind="Q4_1")
    folder = folder_of(load(file), "0-2", tmp_path / "b", trained=".")
    save({"a": file, "b": folder}, "a:0 b:1 a:2", tmp_path / "out.gguf")
    before, after = contents(GGUFFile.open(file)), contents(GGUFFile.open(tmp_path / "out.gguf"))
    assert {name for name in after if after[name] != before[name]} == {n for n in before if n.startswith("blk.1.")}
    assert {name: each[:2] for name, each in after.items()} == {name: each[:2] for name, each in before.items()}
    source = Stack.with_sources({"a": load(file), "b": load(folder)})
    with torch.inference_mode(), source.under("a:0 b:1 a:2"):
        wanted: Any = source.model(TOKENS).logits
    apart = (logits(load(tmp_path / "out.gguf")) - wanted).norm() / wanted.norm()
    assert 0 < apart < 0.2  # four bits


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_a_folder_that_was_not_trained_has_the_bytes_of_the_file(kind: str, tmp_path: Path) -> None:
    file = write_llama(tmp_path / "a.gguf", 3, kind=kind)
    folder = folder_of(load(file), "0-2", tmp_path / "b")
    save({"a": file, "b": folder}, "b:0-2", tmp_path / "out.gguf")
    assert contents(GGUFFile.open(tmp_path / "out.gguf")) == contents(GGUFFile.open(file))


def test_trained_embedding_and_head_are_kept_where_all_layers_are_of_one_folder(tmp_path: Path) -> None:
    file = write_llama(tmp_path / "a.gguf", 3, tied=False)
    folder = folder_of(load(file), "0-2", tmp_path / "b", trained=r"embed_tokens|lm_head")
    save({"a": file, "b": folder}, "b:0-2", tmp_path / "out.gguf")
    before, after = contents(GGUFFile.open(file)), contents(GGUFFile.open(tmp_path / "out.gguf"))
    assert {name for name in after if after[name] != before[name]} == {"token_embd.weight", "output.weight"}


def test_save_reports_quantized_layers(tmp_path: Path) -> None:
    file = write_llama(tmp_path / "a.gguf", 3, kind="Q8_0")
    folder = folder_of(load(file), "0 2", tmp_path / "b", trained="layers")
    ran = layerwise("save", file, folder, "--plan", "b:0-1", "--output", tmp_path / "out.gguf")
    assert "the matrices of 2 of its layers were quantized again; all other tensors are copied from" in ran.out
    assert GGUFFile.open(tmp_path / "out.gguf").setting("block_count") == 2


def _refused(message: str, kind: type[LayerwiseError], models: dict[str, Path], plan: str, folder: Path) -> None:
    with pytest.raises(kind, match=message):
        save(models, plan, folder / "out.gguf")
    assert not (folder / "out.gguf").exists()


def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    file = write_llama(tmp_path / "a.gguf", 3)
    folder = folder_of(load(file), "0 2", tmp_path / "b")
    other = folder_of(load(write_causal(tmp_path / "c.gguf", "gpt2", "F32")), "0-2", tmp_path / "c")
    wide = load(file)
    wide.model.resize_token_embeddings(200)
    wider = folder_of(wide, "0-2", tmp_path / "d")
    for message, model, plan in (
        (r"the plan needs model\.layers\.2\.input_layernorm\.weight,", folder, "b:0-2"),
        (r"the plan needs model\.layers\.0\.input_layernorm\.weight,", other, "b:0"),
        (r"has model\.embed_tokens\.weight of shape \(200, 64\), but", wider, "b:0-2"),
    ):
        _refused(message, UnsupportedModelError, {"a": file, "b": model}, plan, tmp_path)


def test_types_that_the_package_gguf_does_not_write_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gguf

    def quantize(*_: Any) -> None:
        raise NotImplementedError

    file = write_llama(tmp_path / "a.gguf", 3)
    folder = folder_of(load(file), "0-2", tmp_path / "b", trained="layers")
    monkeypatch.setattr(gguf.quants, "quantize", quantize)
    message = (
        r"cannot quantize blk\.0\.\S+ to F32, the type of the source file; use a source file in F16, or in one of Q4_0"
    )
    _refused(message, CheckpointError, {"a": file, "b": folder}, "b:0-2", tmp_path)


def test_metadata_that_cannot_be_undone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from layerwise.stack.streaming.files import GGUFWeight

    file = write_llama(tmp_path / "a.gguf", 3)
    folder = folder_of(load(file), "0-2", tmp_path / "b", trained="layers")
    made_of = GGUFWeight.made_of
    monkeypatch.setattr(GGUFWeight, "made_of", lambda weight, arrays: made_of(weight, arrays) ** 2)
    message = r"transformers' conversion of token_embd\.weight cannot"
    _refused(message, UnsupportedModelError, {"a": file, "b": folder}, "b:0", tmp_path)


gguf: Any = pytest.importorskip("gguf", reason="needs the package gguf: pip install 'layerwise[gguf]'")

ARCHITECTURES = {"llama": "LLAMA", "qwen3": "QWEN3", "gemma2": "GEMMA2", "gpt2": "GPT2", "smollm3": "SMOLLM3"}
WEIGHTS = "model.safetensors"
PLANS = ("0-4 3-4", "0 2 4")


@pytest.fixture(scope="module", params=map(" ".join, zip(ARCHITECTURES, cycle(PLANS), strict=False)))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Plan, Path]:
    tmp_path = tmp_path_factory.mktemp("gguf")
    kind, _, text = request.param.partition(" ")
    one = next(one for one in SUPPORTED if one.model_type == kind)
    build(one).save_pretrained(tmp_path / "base")
    save(load(tmp_path / "base"), text, tmp_path / "m")
    return kind, Plan.parse(text), tmp_path / "m"


def mapped(kind: str, blocks: int, folder: Path) -> dict[str, str | None]:
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, ARCHITECTURES[kind]), blocks)
    return {name: names.get_name(name, try_suffixes=(".weight", ".bias")) for name in load_file(folder / WEIGHTS)}


def test_every_tensor_has_a_name_among_as_many_blocks_as_the_plan_has(checkpoint: tuple[str, Plan, Path]) -> None:
    kind, plan, folder = checkpoint
    blocks = json.loads((folder / "config.json").read_text())
    count = blocks.get("num_hidden_layers", blocks.get("n_layer"))
    assert count == len(plan.steps())
    names = mapped(kind, count, folder)
    assert None not in names.values(), [name for name, found in names.items() if found is None]
    assert len(set(names.values())) == len(names)
    assert {int(str(name).split(".")[1]) for name in names.values() if str(name).startswith("blk.")} == set(
        range(count)
    )
    fewer = mapped(kind, count - 1, folder)  # the deliberate wrong answer: a configuration that kept another depth
    assert None in fewer.values()


def test_the_card_gives_the_converter_its_metadata(checkpoint: tuple[str, Plan, Path]) -> None:
    *_, folder = checkpoint
    (folder.parent / "base" / "README.md").write_text("---\nlicense: mit\nbase_model: org/root\n---\n")
    write_card(folder, name="it", command="x")
    metadata = gguf.Metadata.load(None, folder)
    assert metadata.license == "mit"
    assert "layerwise" in metadata.tags
    assert [base["repo_url"] for base in metadata.base_models] == ["https://huggingface.co/org/root"]
