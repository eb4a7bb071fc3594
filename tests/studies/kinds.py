"""One small run of each kind of experiment on planted times, in this process or (`apart`) in one that may be killed."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import layerwise
from cli.conftest import save_llama, save_texts
from cli.picture_models import save_vit
from conftest import Flat, tiny_llama
from layerwise.catalogue import VERBS
from layerwise.data.suites.generated import PARADIGMS
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.measure.cost.pass_time import Setting
from layerwise.plan import Plan
from layerwise.plan.schedule.allocation import Importance
from layerwise.results import Run
from layerwise.runner.reporter import Silent
from layerwise.search.costs import CostTable
from layerwise.stack import Stack, load
from layerwise.stack.load import resolve_device
from studies.growth.tiny_inputs import save_config, save_documents
from studies.outlines import tiny_training
from tiny_tokenizers import ALPHABET, character_tokenizer

SILENT: Mapping[str, Any] = {"reporter": Silent()}
SHORT: Mapping[str, Any] = {**SILENT, "max_length": 16, "batch_tokens": 256}
TIMED = ("second", "bytes", "data_wait")
"""Parts of names of metrics that depend on the machine."""


def _layer_times(stack: Stack, setting: Setting, plans: Sequence[Plan] = ()) -> tuple[CostTable, dict[Plan, float]]:
    costs = {None: 1.0, "attn": 0.6, "mlp": 0.6}
    table = CostTable({(layer, half): cost for layer in range(stack.depth) for half, cost in costs.items()}, 0.5)
    return table, {plan: 0.6 + len(plan.steps()) for plan in plans}


PLANTED: Mapping[str, Any] = {
    "measure.cost.pass_time:TimedPass.seconds": lambda self: len(self.stack.running.steps()) / 1000,
    "measure.cost.pass_time:PassClock.between": lambda self, begun, ended: 1.0,
    "studies.search.steps:measure_milliseconds": _layer_times,
    "train.training_log:Pace.notes": lambda *_: {"seconds": 1.0, "step_seconds": 1.0, "peak_bytes": 1.0},
    "studies.train_growth.steps:estimate_importance": lambda *_, **__: [
        Importance(effect, effect - 0.001, effect + 0.001) for effect in (0.0, 0.1, 0.4, 0.2)
    ],
    "studies.train_elc.evaluation:PAIRS": 1,
    "studies.train_elc.evaluation:SEGMENTS": 16,
    "data.suites.generated:PARADIGMS": dict(list(PARADIGMS.items())[:2]),
    "models.elc.configuration:SIZES": {
        "tiny": {"num_hidden_layers": 3, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    },
}
"""Planted times, values of layers, and evaluation sizes of pretrained models."""


def plant(setattr: Callable[[Any, str, Any], None] = setattr) -> None:
    for name, value in PLANTED.items():
        module, _, path = name.partition(":")
        *owners, attribute = path.split(".")
        owner: Any = import_module(f"layerwise.{module}")
        for each in owners:
            owner = getattr(owner, each)
        setattr(owner, attribute, value)


def stack(depth: int = 4) -> Stack:
    model = tiny_llama(depth, vocabulary=3 + len(ALPHABET), seed=2).to(resolve_device("auto"))
    return load(model, tokenizer=character_tokenizer())


def corpus(count: int, words: str = "text number") -> Corpus:
    return Corpus("texts", tuple(Document(f"{number}", f"{words} {number} of {count}") for number in range(count)))


def _timing(run: Path) -> None:
    layerwise.time(stack(), plans=("0-3", "0 (1|2) 3"), rounds=6, context=6, run=run, **SILENT)


def _search(run: Path) -> None:
    layerwise.search(stack(5), corpus(44), "ms=0.7x", dtype="float32", context=12, tokens=700, run=run, **SHORT)


def _read(run: Path) -> tuple[Path, Path]:
    model, texts = run.parent / "model", run.parent / "texts"
    if not texts.exists():
        save_llama(model)
        save_texts(texts, count=30, characters=60)
    return model, texts


def _healing(run: Path) -> None:
    model, texts = _read(run)
    layerwise.heal(
        model,
        texts,
        plan="0 2-3",
        method="tail",
        steps=2,
        seeds=1,
        evals=1,
        batch_size=4,
        max_length=24,
        learning_rates=(1e-3, 2e-3),
        controls=("identity",),
        run=run,
        **SILENT,
    )


def _vit(run: Path, seed: int) -> Path:
    folder = run.parent / f"vit-{seed}"
    return folder if folder.exists() else save_vit(folder, seed=seed)


IMAGES: Mapping[str, Any] = {**SILENT, "images": "digits", "limit": 20}


def _robust_training(run: Path, method: str = "layershuffle", seeds: int = 2) -> None:
    tiny_training(_vit(run, 0), run, method, seeds=seeds)


def _robustness(run: Path) -> None:
    layerwise.robustness(_vit(run, 0), orders=2, draws=1, nodes=(2,), inside_images=20, run=run, **IMAGES)


def _merging(run: Path) -> None:
    layerwise.merge([_vit(run, 0), _vit(run, 1)], draws=2, run=run, **IMAGES)


def _sweep(run: Path) -> None:
    layerwise.sweep(stack(), corpus(30), window=("1-2",), prompt=("text",), new_tokens=3, tokens=400, run=run, **SHORT)


def _diagnosis(run: Path) -> None:
    parts = ("ablation", "manipulation", "deltas")
    layerwise.diagnose(stack(), corpus(40), parts=parts, curve_tokens=80, tokens=400, run=run, **SHORT)


def _evaluation(run: Path) -> None:
    layerwise.evaluate(stack(), suite=("pairs",), limit=2, run=run, **SILENT)


def _texts(run: Path) -> Path:
    texts = run.parent / "texts"
    if not texts.exists():
        texts.mkdir()
        save_documents(texts)
    return texts


def _pretraining(run: Path) -> None:
    variants = ("ltg", "elc", "elc-share-0.5")
    layerwise.train.elc(_texts(run), steps=3, batch_size=8, evals=1, variants=variants, run=run, **SILENT)


def _phased(run: Path) -> dict[str, Any]:
    model = run.parent / "config"
    return {
        "model": str(model if model.exists() else save_config(model)),
        "text": _texts(run),
        "batch_size": 4,
        "max_length": 16,
        "evals": 1,
        "run": run,
    }


def _growth(run: Path) -> None:
    tuned = {"learning_rates": [1e-3, 2e-3], "frontier": True}
    layerwise.train.growth(schedules=["importance"], steps=6, seeds=2, **tuned, **_phased(run), **SILENT)


_KINDS: Mapping[str, Callable[[Path], None]] = {
    "time": _timing,
    "search": _search,
    "heal": _healing,
    "train robust": _robust_training,
    "robustness": _robustness,
    "robustness merge": _merging,
    "sweep": _sweep,
    "diagnose": _diagnosis,
    "evaluate": _evaluation,
    "train elc": _pretraining,
    "train growth": _growth,
}
KINDS = {verb: run for verb, run in _KINDS.items() if verb in VERBS}


def carry_out(verb: str, run: Path) -> None:
    sys.modules["umap"] = SimpleNamespace(UMAP=Flat, __spec__=SimpleNamespace())  # type: ignore[assignment]
    plant()
    KINDS[verb](run)


def rows(run: Path) -> list[object]:
    with Run.open(run) as opened:
        scores = [row for row in opened.store.scores() if row.measure != "run"]
        timeless = [row for row in scores if not any(word in row.metric for word in TIMED)]
        return [*opened.store.losses(), *timeless, *opened.store.notes()]
