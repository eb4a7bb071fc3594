"""Inputs of growth trainings: forty short documents, and a Llama of four layers with and without weights."""

from pathlib import Path

from transformers import AutoModelForCausalLM, LlamaConfig

from layerwise.data.text.vocabulary import train_bytepair
from layerwise.results.training_record import TrainingRecord

WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")
DEPTH = 4
SHORT = ("--steps", "8", "--batch-size", "4", "--max-length", "16", "--evals", "1", "--device", "cpu")


def save_documents(folder: Path) -> Path:
    documents = ["\n".join(WORDS[(n + k) % 4] for k in range(20 + n)) for n in range(40)]
    (folder / "words.txt").write_text("\n<|endoftext|>\n".join(documents) + "\n")
    return folder


def save_config(folder: Path) -> Path:
    config = LlamaConfig(
        vocab_size=280,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=DEPTH,
        num_attention_heads=2,
        max_position_embeddings=64,
        use_cache=False,
        tie_word_embeddings=False,
    )
    config.save_pretrained(folder)
    return folder


def save_checkpoint(folder: Path, config: Path, texts: Path) -> Path:
    AutoModelForCausalLM.from_config(LlamaConfig.from_pretrained(config)).save_pretrained(folder)
    train_bytepair([(texts / "words.txt").read_text()], 280).save_pretrained(folder)
    return folder


def record(folder: Path, variant: str, seed: int = 0) -> TrainingRecord:
    found = TrainingRecord.read(folder / variant / f"seed-{seed}" / "model")
    assert found is not None
    return found
