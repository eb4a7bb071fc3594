"""The importance matrix of llama.cpp: read as its package writes it, refused where it is of something else."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from layerwise.errors import CheckpointError
from layerwise.stack.imatrix import imatrix_beside, layer_power

gguf: Any = pytest.importorskip("gguf", reason="needs the package gguf: pip install 'layerwise[gguf]'")


def write(path: Path, sums: dict[str, Any], counts: dict[str, Any], dtype: type = np.float32) -> Path:
    writer = gguf.GGUFWriter(path, "imatrix")
    del writer.kv_data[0]["general.architecture"]  # llama-imatrix names a type alone
    writer.add_type("imatrix")
    for name, values in sums.items():
        writer.add_tensor(f"{name}.weight.in_sum2", np.asarray(values, dtype=dtype))
        if name in counts:
            writer.add_tensor(f"{name}.weight.counts", np.asarray(counts[name], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_layer_has_the_mean_squares_of_all_inputs_of_its_matrices(tmp_path: Path) -> None:
    path = write(
        tmp_path / "imatrix.gguf",
        {
            "blk.0.attn_q": [[2.0, 4.0]],
            "blk.0.ffn_down": [[3.0]],
            "blk.1.ffn_up_exps": [[8.0, 8.0], [0.0, 0.0]],
            "output": [[1e9]],
        },
        {"blk.0.attn_q": [[2.0]], "blk.0.ffn_down": [[1.0]], "blk.1.ffn_up_exps": [[4.0], [0.0]], "output": [[1.0]]},
    )
    assert layer_power(path, 2) == {0: 1 + 2 + 3, 1: 2 + 2}


@pytest.mark.parametrize(
    ("sums", "counts", "dtype", "words"),
    [
        ({"blk.0.attn_q": [[1.0]]}, {"blk.0.attn_q": [[1.0]]}, np.float32, "has finite statistics of 1"),
        ({"blk.0.attn_q": [[1.0]], "blk.1.attn_q": [[1.0]]}, {}, np.float32, "has finite statistics of 0"),
        ({"blk.0.a": [[1.0, 2.0, 3.0]]}, {"blk.0.a": [[1.0], [1.0]]}, np.float32, "has 3 numbers for 2 counts"),
        ({"blk.0.a": [[np.inf]], "blk.1.a": [[1.0]]}, {"blk.0.a": [[1.0]], "blk.1.a": [[1.0]]}, np.float32, "is no"),
        ({"blk.0.a": [[1.0]], "blk.1.a": [[1.0]]}, {"blk.0.a": [[1.0]], "blk.1.a": [[1.0]]}, np.float16, "not F32"),
    ],
)
def test_what_is_no_importance_matrix_of_the_layers_is_refused(
    sums: dict[str, Any], counts: dict[str, Any], dtype: type, words: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=words):
        layer_power(write(tmp_path / "m.gguf", sums, counts, dtype), 2)


def test_it_lies_beside_a_file_or_in_a_folder(tmp_path: Path) -> None:
    def beside(name: Path) -> Path | None:
        return imatrix_beside(SimpleNamespace(source=SimpleNamespace(name=str(name))))  # type: ignore[arg-type]

    assert beside(tmp_path / "model.gguf") is beside(tmp_path) is None
    common, own = tmp_path / "imatrix.gguf", tmp_path / "model.imatrix.gguf"
    common.touch()
    assert beside(tmp_path / "model.gguf") == beside(tmp_path) == common
    own.touch()
    assert beside(tmp_path / "model.gguf") == own
