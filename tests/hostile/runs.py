"""A sweep's run directory made without a model, and ways to damage it."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hostile.material import Content, put
from layerwise.plan import Member, Plan
from layerwise.plan.families import leave_one_out
from layerwise.results import Loss, Manifest, PlanRecord, Run, Score, store
from layerwise.results.training_record import TrainingRecord

Make = Callable[[Path], None]

MANIFEST = Manifest(
    "tiny",
    None,
    "w1",
    "float32",
    "cpu",
    "texts",
    "c1",
    10,
    100,
    64,
    ("leave_one_out",),
    (),
    0,
    layers="model.layers",
    numerics={"batch_tokens": "4096", "threads": "1"},
)
PEDIGREE = TrainingRecord("layershuffle", 0, "w1", "d1", "digits", {"variant": "plain"}, 40, 1.0, 320, 2.5, 20)


def run(folder: Path) -> Path:
    """Leave-one-out on four layers and ten documents, in tables without constraints."""
    path = folder / "run"
    path.mkdir(parents=True)
    loose = store.SCHEMA.replace("WITHOUT ROWID, STRICT", "WITHOUT ROWID").replace(" STRICT", "")
    with closing(sqlite3.connect(path / "run.sqlite")) as made:
        made.executescript(loose)
    (path / "manifest.json").write_text(MANIFEST.to_json())
    members = [Member(Plan.identity(4), "identity", "identity", 0), *leave_one_out(4)]
    with Run.resume_or_create(path, MANIFEST) as opened:
        opened.store.add_plans(
            PlanRecord(str(m.plan), m.family, m.strategy, m.affected, m.draw, 4, 4, 4, 4) for m in members
        )
        opened.store.add_losses(
            Loss(str(member.plan), "prose", f"{document}.txt", 0, 20.0 + document + 0.1 * number, 10, 4)
            for number, member in enumerate(members)
            for document in range(10)
        )
        opened.store.replace_scores("run", [Score("run", "plans", 5.0, section="sweep")])
    return path


def tables(*statements: str) -> Make:
    def make(folder: Path) -> None:
        with closing(sqlite3.connect(run(folder) / "run.sqlite")) as opened:
            for statement in statements:
                opened.executescript(statement)

    return make


def manifest(text: str | bytes | None = None, **changes: object) -> Make:
    def make(folder: Path) -> None:
        path = run(folder) / "manifest.json"
        put(path, json.dumps({**json.loads(path.read_text()), **changes}) if text is None else text)

    return make


def replaced(name: str, content: Content) -> Make:
    return lambda folder: put(run(folder) / name, content)


def trained(text: str | None = None, seed: str = "seed-0", **changes: object) -> Make:
    """Make a training run with one model, with replaced or changed provenance."""

    def make(folder: Path) -> None:
        model_folder = run(folder) / "layershuffle" / seed / "model"
        model_folder.mkdir(parents=True)
        PEDIGREE.write(model_folder)
        path = model_folder / "training.json"
        content = {**json.loads(path.read_text()), **changes}
        path.write_text(text if text is not None else json.dumps(content))
        manifest_path = folder / "run" / "manifest.json"
        content = {**json.loads(manifest_path.read_text()), "families": ["robustness"]}
        manifest_path.write_text(json.dumps(content))

    return make
