"""Folders of sentence-transformers: how they pool is read in both layouts, and other modules are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from layerwise.data.text.sentence_embeddings import Pooling, copy_modules, pooling_in
from layerwise.errors import CheckpointError, MeasureError
from sentence_models import save_sentence_model


def written(folder: Path, modules: Any, pooling: Any = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def listed(*kinds: str) -> list[dict[str, str]]:
    return [
        {"path": "" if not number else f"{number}_{kind}", "type": f"a.b.{kind}"} for number, kind in enumerate(kinds)
    ]


def test_a_folder_says_how_it_pools(tmp_path: Path) -> None:
    assert pooling_in(save_sentence_model(tmp_path / "old")) == Pooling(("mean",), True, 16)
    new = written(tmp_path / "new", listed("Transformer", "Pooling"), {"pooling_mode": "cls"})
    assert pooling_in(new) == Pooling(("cls",))
    (tmp_path / "none").mkdir()
    assert pooling_in(tmp_path / "none") is None


def test_padding_is_not_pooled() -> None:
    states = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    alone = Pooling(("mean",), True)(states[:1, :3], mask[:1, :3])
    torch.testing.assert_close(Pooling(("mean",), True)(states, mask)[:1], alone)
    assert alone.norm() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kinds", "pooling", "said"),
    [
        (("Transformer", "Pooling"), {"pooling_mode_lasttoken": True}, "pooling by lasttoken"),
        (("Transformer", "Pooling"), {"pooling_mode": ["mean", "max"]}, "pooling by mean and max"),
        (("Transformer", "Pooling"), {}, "pooling by ?"),
        (("Transformer", "Pooling", "Dense"), {"pooling_mode": "mean"}, "the module Dense"),
    ],
)
def test_other_embeddings_are_refused_by_name(
    kinds: tuple[str, ...], pooling: dict[str, Any], said: str, tmp_path: Path
) -> None:
    found = pooling_in(written(tmp_path, listed(*kinds), pooling))
    assert found is not None
    with pytest.raises(MeasureError) as refusal:
        found.check("a model")
    assert said in str(refusal.value)


@pytest.mark.parametrize("path", ["../elsewhere", "/etc"])
def test_a_module_lies_inside_of_its_folder(path: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "m", [{"path": "", "type": "a.Transformer"}, {"path": path, "type": "a.Pooling"}])
    for reads in (pooling_in, lambda each: copy_modules(each, tmp_path / "to")):
        with pytest.raises(CheckpointError, match="which is not in"):
            reads(folder)


@pytest.mark.parametrize("content", [{}, [1], [{"path": ""}]])
def test_a_malformed_list_of_modules_is_refused(content: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no list of modules"):
        pooling_in(written(tmp_path, content))
