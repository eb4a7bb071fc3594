"""`layerwise plan --from` and `--to`: plans from other tools and for them."""

import json
from pathlib import Path

import pytest

from cli.command import layerwise, refused
from conftest import tiny_llama
from layerwise.plan.dialects import read_mergekit, write_mergekit

YAML = write_mergekit("a:0-3 b:2-5", {"a": "org/one", "b": "org/two"}, dtype="bfloat16")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "merge.yml"
    path.write_text(YAML)
    return path


def test_mergekit_files_are_shown_as_plans(file: Path) -> None:
    ended = layerwise("plan", "--from", file, "--depth", "6")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("a:0-3 b:2-5\nlayers 0 to 3 of a, in order\n")
    assert "layer evaluations  8 (original model: 6)" in ended.out
    assert "model b            org/two\n" in ended.out
    assert "a:3  ████████\nb:2  ██████████\n" in ended.out


def test_ignored_settings_are_noted(file: Path) -> None:
    file.write_text(YAML + "seed: 1\n")
    assert layerwise("plan", "--from", file).err.startswith("note: line ")


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("0-1 Q4_0:2", "3", "--depth", "4", "--to", "tensor-types"), "blk\\.2\\.=q4_0"),
        (("--from", "0 1*2", "--depth", "8", "--to", "text"), "0 1*2"),
    ],
)
def test_plans_are_converted(arguments: tuple[str, ...], printed: str) -> None:
    assert layerwise("plan", *arguments).out == f"{printed}\n"


def test_models_need_not_be_local() -> None:
    ended = layerwise("plan", "a:0 b:1", "--model", "org/a", "--model", "org/b", "--depth", "4", "--to", "mergekit")
    assert dict(read_mergekit(ended.out).models) == {"a": "org/a", "b": "org/b"}


def test_mergekit_files_round_trip(file: Path) -> None:
    assert layerwise("plan", "--from", file, "--to", "mergekit").out == YAML
    assert layerwise("plan", "--from", file, "--to", "text").out == "a:0-3 b:2-5\n"


def test_depth_and_location_are_read_from_the_model(tmp_path: Path) -> None:
    tiny_llama(5).save_pretrained(tmp_path / "m")
    assert "layer evaluations  4 (original model: 5)" in layerwise("plan", "0-2 4", "--model", tmp_path / "m").out
    written = layerwise(
        "plan", "a:0-2 b:3", "--model", tmp_path / "m", "--model", tmp_path / "m", "--to", "mergekit"
    ).out
    recipe = read_mergekit(written)
    assert set(recipe.models.values()) == {str(tmp_path / "m")}
    assert "visits layer 5, but the model has 5 layers" in refused("plan", "0-5", "--model", tmp_path / "m")
    assert "has no config.json" in refused("plan", "0-5", "--model", tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_hidden_layers": True}, "config"),
        ({"num_hidden_layers": None}, "config"),
        ({"num_hidden_layers": 0}, "--depth"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000"),
        ({"model_type": ["llama"]}, "model_type must be a name such as llama, got ['llama']"),
        ({"model_type": "a" * 100_000}, "cannot be read"),
        ({"model_type": "t5", "num_layers": 2}, "--depth"),
        ({"model_type": "vit", "hidden_size": "wide"}, "cannot be read"),
        ({"rope_parameters": "far"}, "cannot be read"),
        ("[1]", "config.json must be a JSON object, got a list"),
        ('{"a":' * 99_999, "nested too deeply"),
    ],
)
def test_invalid_configurations_are_refused(change: dict[str, object] | str, reason: str, tmp_path: Path) -> None:
    settings = {"model_type": "llama", "num_hidden_layers": 5}
    content = change if isinstance(change, str) else json.dumps(settings | change)
    (tmp_path / "config.json").write_text(content)
    message = refused("plan", "0-3", "--model", tmp_path)
    assert reason in message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("0-3", "--to", "mergekit"), "--to mergekit requires --model"),
        (
            ("0 (1|2)", "--model", "org/a", "--depth", "4", "--to", "mergekit"),
            "stage 2 of the plan, (1|2), runs layers in parallel, but mergekit's YAML only",
        ),
        (("0-3", "--to", "yaml"), "--to must be one of mergekit, tensor-types, text, got 'yaml'"),
        (("0-3", "--from", "0-2"), "PLAN and --from cannot be combined"),
        (("--from", "nothing.yml"), "nothing.yml is not a file"),
    ],
)
def test_impossible_conversions_are_refused(arguments: tuple[str, ...], reason: str) -> None:
    assert reason in refused("plan", *arguments)


def test_messages_name_file_and_line(file: Path) -> None:
    file.write_text(YAML.replace("passthrough", "ties"))
    assert f"{file}, line 1: merge_method must be passthrough, got ties" in refused("plan", "--from", file)
    file.write_bytes(b"\xff\xfe")
    assert f"{file} is not UTF-8 text" in refused("plan", "--from", file)
