"""A text of a few sentences with its tokenizer, and a recipe of six steps in two phases."""

from collections.abc import Mapping, Sequence

from transformers import PreTrainedTokenizerBase

from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import encode_documents
from layerwise.data.text.segments import PretrainingText, hash_parts
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.train.pretrain.recipe import pretraining_recipe

WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")
TOKENIZER = train_wordpiece(WORDS * 10, vocabulary=280)
STEPS = 6


def documents(first: int, count: int) -> list[Document]:
    return [
        Document(str(n), " ".join(WORDS[(n + k) % 4] for k in range(6 + n % 3))) for n in range(first, first + count)
    ]


def pretraining_text(tokenizer: PreTrainedTokenizerBase, parts: Mapping[str, Sequence[Document]]) -> PretrainingText:
    splits = {split: encode_documents(tokenizer, documents) for split, documents in parts.items()}
    return PretrainingText("words", hash_parts(parts), **splits)


TEXT = pretraining_text(
    TOKENIZER, {"train": documents(0, 16), "validation": documents(16, 3), "test": documents(19, 8)}
)
RECIPE = pretraining_recipe(
    "tiny",
    steps=STEPS,
    batch_size=8,
    lengths=(16, 48),
    short=0.67,
    evals=3,
    learning_rate=5e-3,
    dropout=0.1,
    vocabulary=None,
)
