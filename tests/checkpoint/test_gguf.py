"""The converter of llama.cpp reads folders written by layerwise (names, metadata; no architecture-specific steps)."""

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from contracts.specimen import build
from contracts.zoo import SUPPORTED
from layerwise.checkpoint import save
from layerwise.checkpoint.card import write_card
from layerwise.plan import Plan
from layerwise.stack import load

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
    write_card(folder, name="it", command="x", versions={})
    metadata = gguf.Metadata.load(None, folder)
    assert metadata.license == "mit"
    assert "layerwise" in metadata.tags
    assert [base["repo_url"] for base in metadata.base_models] == ["https://huggingface.co/org/root"]
