"""Every verb and every documented cell runs on an accelerator, wherever the inputs are."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import layerwise
from layerwise.stack import Stack, load
from layerwise.studies.diagnose.part_names import PARTS
from studies.kinds import KINDS, SHORT, corpus, plant, rows, stack
from tier import first_fast

LONG = ("train growth", "train robust")
DOCS = Path(__file__).parents[2] / "docs"
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {page.stem: page for page in sorted(DOCS.rglob("*.md")) if CELL.search(page.read_text())}
IN_CI = ("in_place", "start", "your_module")

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("verb", [pytest.param(v, marks=[pytest.mark.nightly] if v in LONG else []) for v in KINDS])
@pytest.mark.usefixtures("flat")
def test_verbs_run(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch.setattr)
    KINDS[verb](tmp_path / "run")
    assert rows(tmp_path / "run")


@pytest.mark.parametrize("place", ["accelerator", pytest.param("cpu", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("verb", first_fast(sorted(KINDS, key="sweep".__ne__), 1, slow=0))
@pytest.mark.usefixtures("flat")
def test_verbs_ignore_the_default_device(
    verb: str, place: str, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch.setattr)
    if place == "cpu":
        monkeypatch.setattr("studies.kinds.resolve_device", lambda _: torch.device("cpu"))
    with torch.device(device):
        KINDS[verb](tmp_path / "run")
    assert rows(tmp_path / "run")


@pytest.mark.parametrize("page", [pytest.param(p, marks=[] if p in IN_CI else [pytest.mark.nightly]) for p in PAGES])
def test_notebook_cells_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in CELL.findall(PAGES[page].read_text()):
        options = re.match(r"(?:---\n.*?\n---\n|:[^\n]*\n)*", cell, re.DOTALL)
        exec(compile(cell[options.end() if options else 0 :], f"{page}.md", "exec"), names)


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Stack:
    """Layers 0 and 1 with the embedding on the first device, layers 2 and 3 with the head on the second."""
    if torch.accelerator.device_count() < 2:
        pytest.skip("one device")
    folder = tmp_path_factory.mktemp("model")
    own = stack()
    own.model.save_pretrained(folder)
    first, second = (f"{device.type}:{index}" for index in (0, 1))
    parts = {"model.embed_tokens": first, "model.rotary_emb": first, "model.norm": second, "lm_head": second}
    layers = {f"model.layers.{layer}": first if layer < 2 else second for layer in range(own.depth)}
    return load(folder, tokenizer=own.tokenizer, device_map={**parts, **layers})


CURVES = ("predictability", "manipulation", "redundancy")
SPREAD: dict[str, Callable[..., Any]] = {
    "sweep": partial(layerwise.sweep, window=("1-2",), prompt=("text",), new_tokens=3, tokens=400),
    "sublayers": partial(layerwise.sweep, plans=("0 1.mlp 2.attn 3", "0 (1|2)*2 3"), families=(), tokens=400),
    "search": partial(layerwise.search, budget="layers=3", tokens=700),
    "diagnose": partial(layerwise.diagnose, parts=tuple(each for each in PARTS if each not in CURVES), tokens=400),
    **{part: partial(layerwise.diagnose, parts=(part,), curve_tokens=80, tokens=400) for part in CURVES},
}


@pytest.mark.nightly
@pytest.mark.parametrize("verb", SPREAD)
def test_a_model_on_two_devices_equals_one_device(verb: str, spread: Stack, tmp_path: Path) -> None:
    found = {}
    for name, model in (("two", spread), ("one", stack())):
        SPREAD[verb](model, corpus(40), run=tmp_path / name, **SHORT)
        found[name] = rows(tmp_path / name)
    assert len(found["one"]) > 0
    assert found["two"] == pytest.approx(found["one"])
