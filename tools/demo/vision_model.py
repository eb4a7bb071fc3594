"""Train the demo vision transformer: 12 layers and 229 thousand weights, on scikit-learn's digits.

    python -m tools.demo.vision_model --out FOLDER

It is trained with its layers in order. `layerwise train ... --model demo-vit` starts from it to train models that are
robust to layer order. An image has only five tokens (four patches of 4 x 4 pixels and the class token), so a training
step takes about 30 milliseconds on one processor core.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from transformers import ViTConfig, ViTForImageClassification, set_seed

from layerwise.data.vision.digits import CLASSES, SIDE, digits
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.plan import Plan
from layerwise.results.training_record import FILE, MODEL
from layerwise.stack import Stack, load, weight_hash
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.training import Base, train

SEED = 0


def new_model() -> ViTForImageClassification:
    set_seed(SEED)
    config = ViTConfig(
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=12,
        num_attention_heads=4,
        image_size=SIDE,
        patch_size=4,
        num_channels=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(CLASSES)),
        label2id={name: label for label, name in enumerate(CLASSES)},
    )
    return ViTForImageClassification(config)


def recipe() -> Recipe:
    settings = Settings(
        epochs=200, batch_size=64, learning_rate=1e-3, schedule="cosine", warmup=0.02, augmentation="crop", evals=20
    )
    return Recipe("demo-vit", settings)


def make(out: Path) -> tuple[Stack, float]:
    """Train the demo in `out` and write it to `out/demo_vit`. Returns it with its test accuracy."""
    splits = digits("crop")
    base = Base(lambda: load(new_model()), weight_hash(new_model()))
    pedigree = train(base, splits, recipe(), SEED, out / "training")
    folder = out / "demo_vit"
    model = ViTForImageClassification.from_pretrained(out / "training" / MODEL)
    model.half().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}, indent=2) + "\n")
    shutil.copyfile(out / "training" / MODEL / FILE, folder / FILE)
    stack = load(folder)
    accuracy = evaluate(stack, Plan.identity(stack.depth), splits.test, splits.collate).accuracy
    (folder / "README.md").write_text(
        f"# demo-vit\n\nA vision transformer of {stack.depth} layers and {model.num_parameters():,} weights for "
        "handwritten digits of 8 x 8 pixels, trained in\n"
        f"order for {pedigree.epochs:g} epochs on 60 % of scikit-learn's digits by `python -m tools.demo.vision_model`"
        f".\nAccuracy on the test images: {accuracy:.1%}. Weights in float16; Apache-2.0.\n"
        "The images: E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998 (CC BY 4.0).\n"
    )
    return stack, accuracy


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.demo.vision_model", description="Train demo-vit.")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the run; the model: OUT/demo_vit")
    options = parser.parse_args(arguments)
    _, accuracy = make(options.out)
    print(f"accuracy on the test images: {accuracy:.1%}; written to {options.out / 'demo_vit'}")


if __name__ == "__main__":
    main()
