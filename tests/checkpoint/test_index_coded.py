"""Configurations that derive a layer's type from its index are solved for a plan, or refused."""

from pathlib import Path

import pytest
import torch

from contracts.specimen import build, inputs
from contracts.zoo import SUPPORTED
from layerwise.checkpoint import save
from layerwise.errors import UnsupportedModel
from layerwise.stack import load
from tier import first_fast

SOLVED = [
    ("deepseek_v3", "1-4", {"first_k_dense_replace": 0}),
    ("deepseek_v3", "0*3 2 4", {"first_k_dense_replace": 3}),
    ("bamba", "4 0*2 3 1", {"attn_layer_indices": [3, 4]}),
    ("qwen3_moe", "1 3 1", {"decoder_sparse_step": 1, "mlp_only_layers": []}),
    ("qwen3_moe", "1 0 3", {"mlp_only_layers": [1]}),
    ("qwen3_moe", "4 0*2 3 1", {"decoder_sparse_step": 1, "mlp_only_layers": [0, 1, 2]}),
    ("glm4_moe", "1-4", {"first_k_dense_replace": 0}),
]


@pytest.mark.parametrize("case", first_fast(SOLVED, 1), ids=lambda case: " ".join(case[:2]))
def test_the_settings_of_the_plan(case: tuple[str, str, dict[str, object]], tmp_path: Path) -> None:
    kind, text, settings = case
    one = next(one for one in SUPPORTED if one.model_type == kind)
    model = build(one)
    model.save_pretrained(tmp_path / "home")
    for number, source in enumerate((load(model), tmp_path / "home")):
        origin = save(source, text, tmp_path / f"m{number}", inputs=inputs(one, model))
        assert (origin.gap, origin.note) == (0.0, "")
    written = [type(model).from_pretrained(tmp_path / name) for name in ("m0", "m1")]
    for each in written:
        assert {name: getattr(each.config, name) for name in settings} == settings
    first, second = (each.state_dict() for each in written)
    assert all(torch.equal(first[name], second[name]) for name in first | second)


def test_no_values_fit(tmp_path: Path) -> None:
    build(next(one for one in SUPPORTED if one.model_type == "deepseek_v3")).save_pretrained(tmp_path / "home")
    with pytest.raises(
        UnsupportedModel, match=r"in slot 1, mlp would be DeepseekV3MLP instead of DeepseekV3MoE|no values"
    ):
        save(tmp_path / "home", "1 0 2", tmp_path / "m")
    assert not (tmp_path / "m").exists()
