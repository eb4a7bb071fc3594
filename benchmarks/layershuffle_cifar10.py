"""LayerShuffle on CIFAR-10: pretrain a vision transformer in order, refine it with every method, and compare.

    python benchmarks/layershuffle_cifar10.py --images FOLDER --out FOLDER [--preset gpu] [--seeds 3] [--variants A,B]

`--images` is a directory with train/, validation/ and test/, each with a subdirectory per class. A run that was
stopped (also by `timeout 590` or `kill -9`) resumes with the same command.
The preset `cpu` is a small transformer of 12 layers on 17 tokens per image, for 10,000 images; `cpu-whole` is the same
model for all of CIFAR-10, with fewer epochs; `gpu` is ViT-Ti/4 in bfloat16, for all of CIFAR-10. Writes report.html
into the run directory; `layerwise report --format parquet` exports its rows.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import ViTConfig, ViTForImageClassification, set_seed
from transformers.utils import logging

from layerwise import page as pages
from layerwise.data.vision.images import read_images
from layerwise.data.vision.preprocessing import load_preprocessing
from layerwise.measure.interventions.survey import EvaluationGrid
from layerwise.results import Manifest, Run
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.runner.summary import report_data, summary
from layerwise.runner.terminal import Terminal
from layerwise.runner.training_runs import finished_models, make_training_rows
from layerwise.stack import Stack, load, weight_hash
from layerwise.studies.robustness.surveys import SurveysUnit
from layerwise.train.load_trained import open_trained
from layerwise.train.methods import COMPARED, Options, recipe
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.training import Base, train


@dataclass(frozen=True, slots=True)
class Preset:
    """The size of the experiment."""

    width: int
    patch: int
    pretraining: Settings
    refining: Settings
    grid: EvaluationGrid
    reduced: tuple[int, ...]


REFINING = Settings(
    epochs=2,
    batch_size=64,
    learning_rate=1e-3,
    schedule="cosine",
    warmup=0.05,
    augmentation="crop+flip",
    evals=4,
    from_scratch_factor=2,
)
PRESETS = {
    "cpu": Preset(
        width=48,
        patch=8,
        pretraining=replace(REFINING, epochs=15, evals=5),
        refining=REFINING,
        grid=EvaluationGrid(orders=20, kept=(9, 6, 3)),
        reduced=(9, 6, 3),
    ),
    "cpu-whole": Preset(
        width=48,
        patch=8,
        pretraining=replace(REFINING, epochs=6, evals=3),
        refining=replace(REFINING, evals=2),
        grid=EvaluationGrid(orders=5, kept=(6,)),
        reduced=(),
    ),
    "gpu": Preset(
        width=192,
        patch=4,
        pretraining=replace(REFINING, epochs=100, batch_size=512, precision="bfloat16", evals=20),
        refining=replace(REFINING, epochs=20, batch_size=512, precision="bfloat16", evals=10),
        grid=EvaluationGrid(),
        reduced=(9, 6, 3),
    ),
}


def new_model(preset: Preset, classes: tuple[str, ...]) -> ViTForImageClassification:
    """Make the architecture with fixed random weights."""
    set_seed(0)
    config = ViTConfig(
        hidden_size=preset.width,
        intermediate_size=2 * preset.width,
        num_hidden_layers=12,
        num_attention_heads=4,
        image_size=32,
        patch_size=preset.patch,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(classes)),
        label2id={name: label for label, name in enumerate(classes)},
    )
    return ViTForImageClassification(config)


def list_recipes(preset: Preset, depth: int, wanted: list[str] | None = None) -> list[Recipe]:
    """Select the methods; by default all of the library, and models refined at each reduced depth."""
    methods = wanted or [*COMPARED, *(f"retrained-{count}" for count in preset.reduced)]
    return [recipe(name, Options(preset.refining), depth) for name in methods]


def main() -> None:
    """Run or resume the experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", choices=PRESETS, default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", type=lambda text: text.split(","), help="methods to compare, separated by commas")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    preset = PRESETS[options.preset]

    first = read_images(options.images, preprocessing=load_preprocessing(ViTConfig(image_size=32, num_channels=3)))
    blank = new_model(preset, first.classes)
    splits = read_images(
        options.images, preprocessing=load_preprocessing(blank.config), augmentation=preset.refining.augmentation
    )
    start = Base(lambda: load(new_model(preset, splits.classes)), weight_hash(blank))
    pretrained = options.out / "base" / "seed-0"
    said = train(start, splits, Recipe("base", preset.pretraining), 0, pretrained)
    print(f"base: {said.steps} steps, {said.seconds:.0f} s", flush=True)

    def opened() -> Stack:
        return load(pretrained / MODEL)

    base = Base(opened, weight_hash(opened().model), str(pretrained / MODEL))
    for seed in range(options.seeds):
        for each in list_recipes(preset, 12, options.variants):
            found = train(base, splits, each, seed, options.out / each.variant / f"seed-{seed}")
            print(f"{each.variant}, seed {seed}: {found.steps} steps, {found.seconds:.0f} s", flush=True)
    report(options.out, base, splits, preset)


def report(out: Path, base: Base, splits: object, preset: Preset) -> None:
    """Survey every model and write the report."""
    stack = base.open()
    manifest = Manifest(
        model=f"ViT, 12 layers, width {preset.width}, patch {preset.patch}",
        revision=None,
        weight_hash=base.weights,
        dtype=str(stack.dtype).removeprefix("torch."),
        device=str(stack.device.type),
        corpus=splits.name,
        corpus_hash=splits.digest,
        documents=len(splits.test),
        tokens=len(splits.test),
        window=1,
        families=("robustness",),
        tasks=(),
        seed=0,
        layers=stack.path,
        command=tuple(sys.argv),
    )
    models = [model for model in finished_models(out) if model.variant != "base"]
    with Run.resume_or_create(out, manifest) as run, Terminal() as reporter:
        records = {each.label: TrainingRecord.read(each.folder) for each in models}
        run.store.replace_scores("training", make_training_rows({k: v for k, v in records.items() if v is not None}))
        SurveysUnit(lambda _: models, stack, splits, preset.grid, open_trained, "").assess(models, run, reporter)
        data = report_data(run)
        print(summary(data))
        pages.write(run.report, pages.render(data))
        print(f"report: {run.report}")


if __name__ == "__main__":
    main()
