"""Train the demo model: a 12-layer Llama with 2.5 million weights.

    python -m tools.demo.language_model --out FOLDER [--resume] [--minutes M]

Its training text is the docstrings and source of Python's standard library (`layerwise.data.demo.python_stdlib`), mixed
with four generated skills (`layerwise.data.demo.skills`), so that skipping or reordering layers affects some skills
more than others. The learning rate follows a cosine over the completed fraction of the run. The run ends at the last
step of the recipe or after `--minutes`, whichever comes first, so that a slow machine also produces a finished model.

`FOLDER` contains the log and the checkpoints of the run. The finished model in `FOLDER/model` has float16 weights, the
tokenizer, the recipe, the log, the grades, and a model card.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from layerwise.data.demo import python_stdlib, skills
from layerwise.errors import RunError
from tools.demo.callbacks import Grader, Progress
from tools.demo.grading import exact_matches, generated, text_grade
from tools.demo.model_card import Grades, Provenance, SkillGrade, card, provenance
from tools.demo.windows import Mixture, Windows, train_tokenizer


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings of the demo model, except the machine on which it is trained."""

    layers: int
    width: int
    heads: int
    inner_width: int
    vocabulary: int
    mixture: Mixture
    steps: int
    warmup_steps: int
    learning_rate: float
    weight_decay: float
    betas: tuple[float, float]
    gradient_norm: float
    log_every: int
    check_every: int  # steps between checkpoints and small evaluations
    check_examples: int
    grade_windows: int  # of each held-out document, at the end
    grade_examples: int
    grade_generated: int
    seed: int


def recipe() -> Recipe:
    mixture = Mixture(
        batch=4,
        window=256,
        long_window=512,
        long_every=16,
        skill_share=0.75,
        skill_weights={"arithmetic": 0.65, "copy": 0.05, "sort": 0.1, "brackets": 0.2},
        prose_share=0.3,
    )
    return Recipe(
        layers=12,
        width=128,
        heads=4,
        inner_width=344,
        vocabulary=1024,
        mixture=mixture,
        steps=16000,
        warmup_steps=100,
        learning_rate=2e-3,
        weight_decay=0.1,
        betas=(0.9, 0.98),
        gradient_norm=1.0,
        log_every=100,
        check_every=1000,
        check_examples=64,
        grade_windows=4,
        grade_examples=500,
        grade_generated=50,
        seed=1,
    )


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished run: the model, its tokenizer, steps and seconds."""

    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast
    steps: int
    seconds: float


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    set_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.width,
        intermediate_size=recipe.inner_width,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=recipe.mixture.long_window,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def train(
    recipe: Recipe, out: Path, *, minutes: float | None = None, resume: bool = False, compiled: bool = False
) -> Trained:
    """Train `recipe` in `out`. If `resume`, continue from its last checkpoint.

    Raises `RunError` if `resume` is true and there is no checkpoint, or if it is false and `out` already has a run.
    """
    checkpoint = _checkpoint(out, resume)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(recipe.vocabulary)
    model = new_model(recipe, tokenizer)
    windows = Windows(tokenizer, recipe.mixture, recipe.seed, recipe.steps * recipe.mixture.batch)
    progress = Progress(out / "log.jsonl", recipe.steps, recipe.warmup_steps, minutes)
    if checkpoint is not None:
        progress.resume(int(checkpoint.rsplit("-", 1)[1]))
    grader = Grader(model, tokenizer, progress, recipe.check_every, recipe.check_examples, recipe.mixture.window)
    optimizer = torch.optim.AdamW(_decayed(model, recipe), lr=recipe.learning_rate, betas=recipe.betas)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, progress.rate)
    # Windows come in two lengths: compile one program for each, not one that is general and slower.
    torch._dynamo.config.automatic_dynamic_shapes = False
    trainer = Trainer(
        model=model,
        args=_arguments(recipe, out, compiled),
        train_dataset=windows,
        optimizers=(optimizer, schedule),
        callbacks=[progress, grader],
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    return Trained(model, tokenizer, trainer.state.global_step, progress.seconds)


def _checkpoint(out: Path, resume: bool) -> str | None:
    found = get_last_checkpoint(str(out)) if out.is_dir() else None
    if resume and found is None:
        raise RunError(f"{out} has no checkpoint to resume; omit --resume to start a new run")
    if not resume and (out / "log.jsonl").exists():
        raise RunError(f"{out} already has a training run; add --resume, or choose another folder")
    return found if resume else None


def _decayed(model: LlamaForCausalLM, recipe: Recipe) -> list[dict[str, Any]]:
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]


def _arguments(recipe: Recipe, out: Path, compiled: bool) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(out),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.mixture.batch,
        train_sampling_strategy="sequential",
        max_grad_norm=recipe.gradient_norm,
        logging_steps=recipe.log_every,
        save_steps=recipe.check_every,
        save_total_limit=2,
        seed=recipe.seed,
        torch_compile=compiled,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def grade(recipe: Recipe, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> Grades:
    """Evaluate a model on held-out text, with windows of both lengths, and on every skill."""
    texts = {
        f"{kind}, windows of {window}": text_grade(
            model, tokenizer, python_stdlib.read_documents("heldout", kind), window, recipe.grade_windows
        )
        for kind in python_stdlib.KINDS
        for window in (recipe.mixture.window, recipe.mixture.long_window)
    }
    return Grades(texts, {task: _skill_grade(recipe, model, tokenizer, task) for task in skills.TASKS})


def _skill_grade(recipe: Recipe, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, task: str) -> SkillGrade:
    sample = skills.draw_examples(task, "heldout", recipe.grade_examples)
    matches = exact_matches(model, tokenizer, sample)
    asked = sample[: recipe.grade_generated]
    written = [generated(model, tokenizer, example) == example.answer for example in asked]
    agrees = sum(one == other for one, other in zip(written, matches, strict=False))
    return SkillGrade(sum(matches), len(sample), agrees, len(asked))


def publish(recipe: Recipe, trained: Trained, run: Provenance, log: Path, folder: Path) -> Grades:
    """Write the finished model to `folder` in float16, and evaluate it after reading it again."""
    trained.model.half().save_pretrained(folder)
    trained.tokenizer.save_pretrained(folder)
    _compute_in_float32(folder / "config.json")
    shutil.copyfile(log, folder / "log.jsonl")
    (folder / "recipe.json").write_text(as_json(recipe))
    model = LlamaForCausalLM.from_pretrained(folder)
    grades = grade(recipe, model, trained.tokenizer)
    (folder / "grades.json").write_text(_json({**asdict(grades), "run": asdict(run)}))
    (folder / "README.md").write_text(card(model.num_parameters(), grades, run))
    return grades


def _compute_in_float32(config: Path) -> None:
    """Set float32 as the compute type, since half precision on a CPU is slow and less exact."""
    settings = json.loads(config.read_text())
    config.write_text(_json({**settings, "dtype": "float32"}))


def as_json(recipe: Recipe) -> str:
    return _json(asdict(recipe))


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo.language_model", description="Train the demo model of layerwise."
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of the run; the model: OUT/model")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    parser.add_argument("--minutes", type=float, help="end the run after this much training time")
    parser.add_argument("--threads", type=int, help="CPU threads; default: as many as torch chooses")
    parser.add_argument("--compile", action="store_true", help="compile the model first (needs a C++ compiler)")
    parser.add_argument("--note", default="", help="a sentence for the card on what the recipe does not tell")
    options = parser.parse_args(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    chosen = recipe()
    trained = train(chosen, options.out, minutes=options.minutes, resume=options.resume, compiled=options.compile)
    tokens = chosen.mixture.tokens(trained.steps)
    run = provenance(
        steps=trained.steps,
        tokens=tokens,
        minutes=trained.seconds / 60,
        seed=chosen.seed,
        note=options.note,
    )
    grades = publish(chosen, trained, run, options.out / "log.jsonl", options.out / "model")
    for task, skill in grades.skills.items():
        print(f"{task}: {skill.hits} of {skill.examples} exact")
    print(f"written to {options.out / 'model'}")


if __name__ == "__main__":
    main()
