"""`layerwise save`: what is written and how it is told, and what no checkpoint can hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import layerwise as library
from cli.command import layerwise, refused
from cli.test_merge import save_vit
from conftest import tiny_llama
from layerwise.results.pedigree import Pedigree


def test_a_plan_is_written_as_a_model_that_transformers_loads(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shallow"
    ended = layerwise("save", model, "--plan", "0 2-3", "--to", folder, "--quiet")
    assert (ended.code, ended.err) == (0, "")
    first, proved, *how = ended.out.splitlines()
    assert first.startswith(f"{folder}: 3 layers, ")
    assert first.endswith(" parameters, with its tokenizer")
    assert proved == "loaded again with plain transformers: the same logits"
    loaded: dict[str, torch.nn.Module] = {}
    exec("\n".join(line.strip() for line in how[1:]), loaded)  # the lines that it prints
    ids = AutoTokenizer.from_pretrained(folder)("a layer", return_tensors="pt")["input_ids"]
    stack = library.load(model)
    with stack.under("0 2-3"), torch.inference_mode():
        assert torch.equal(loaded["model"](ids).logits, stack.model(ids).logits)
    assert json.loads((folder / "plan.json").read_text())["plan"] == "0 2 3"


def test_a_repeated_layer_is_a_copy_and_a_folder_is_replaced_only_when_asked(model: Path, tmp_path: Path) -> None:
    once = ("save", model, "--to", tmp_path / "m", "--plan")
    assert "; 1 of its layers is a copy" in layerwise(*once, "0-3 3").out
    assert "holds a model already" in refused(*once, "0-2")
    assert ": 3 layers" in layerwise(*once, "0-2", "--fresh").out
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "m").config.num_hidden_layers == 3


@pytest.mark.parametrize(("asked", "written"), [((), "bfloat16"), (("--dtype", "float32"), "float32")])
def test_weights_stay_in_the_format_that_they_are_stored_in(
    tmp_path: Path, asked: tuple[str, ...], written: str
) -> None:
    tiny_llama(3).to(torch.bfloat16).save_pretrained(tmp_path / "half")
    ended = layerwise("save", tmp_path / "half", "--plan", "0 2", "--to", tmp_path / "m", *asked)
    assert ended.code == 0, ended.err
    assert "tokenizer" not in ended.out
    assert str(AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype="auto").dtype) == f"torch.{written}"


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("0 (1|2) 3", "the plan has a group: run it in place with stack.under, or write its layers in turn, as in 0-3"),
        ("0 1.attn 2-3", "a checkpoint holds whole layers, and the plan runs 1.attn"),
        ("0-4", "visits layer 4, but the model has 4 layers"),
        ("0-", "a range ends in a layer"),
    ],
)
def test_plans_that_no_checkpoint_holds_are_refused(model: Path, tmp_path: Path, plan: str, reason: str) -> None:
    assert reason in refused("save", model, "--plan", plan, "--to", tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_runs_and_layers_that_were_trained_with_more_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    options = ("--plan", "0-1", "--to", tmp_path / "m")
    assert "give the folder of one" in refused("save", tmp_path / "run", *options)
    told = save_vit(tmp_path / "told", 0, None)
    Pedigree("arm", 0, "b", "d", "digits", {"variant": "position"}, 1, 1.0, 1, 1.0, 1).write(told)
    assert "trained with a position encoding" in refused("save", told, *options)
    assert not (tmp_path / "m").exists()
