"""Windows for training and evaluation, in full rows that compute packed texts as if each were alone."""

from collections import Counter
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM, PreTrainedModel

from conftest import tiny_llama
from layerwise.data.batches import IGNORED
from layerwise.data.splits import SPLITS, Splits
from layerwise.data.text.documents import Document
from layerwise.data.text.language_modelling import TokenWindows, evenly_spaced, splits_of, whole
from layerwise.data.text.packing import FILL, PackedWindows, packed
from layerwise.data.text.tokens import Window
from layerwise.errors import DataError
from layerwise.stack.max_length import keeps_texts_apart
from rounding import unit
from tiny_tokenizers import character_tokenizer

START = 1


def window(number: int, length: int, answer: int = 1) -> Window:
    draw = Random(number)
    ids = (START, *(draw.randrange(3, 97) for _ in range(length - 1)))
    return Window(f"d{number}", "text", 0, ids, answer, length)


def tiny_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=97,
        n_positions=128,
        n_embd=32,
        n_layer=3,
        n_head=4,
        initializer_range=0.2,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
    )
    return GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
def test_texts_in_a_row_have_the_losses_that_they_have_alone(make: type[PreTrainedModel]) -> None:
    model = make()
    model.config.use_cache = False  # as the Trainer sets it
    texts = [window(number, length, answer) for number, (length, answer) in enumerate([(20, 1), (7, 4), (11, 1)])]
    rows = PackedWindows([texts, [window(9, 30)]])
    splits = Splits("texts", "", rows, rows, rows, pad_id=2)
    batch = splits.collate([rows[0], rows[1]])
    assert set(batch) == {"input_ids", "labels", "position_ids"}
    with torch.inference_mode():
        logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits
        losses = functional.cross_entropy(
            logits[0, :-1], batch["labels"][0, 1:], reduction="none", ignore_index=IGNORED
        )
        start = 0
        for text in texts:
            ids = torch.tensor(text.ids)
            alone = functional.cross_entropy(model(input_ids=ids[None]).logits[0, :-1], ids[1:], reduction="none")
            alone[: text.scored_from - 1] = 0.0
            found = losses[start : start + len(ids) - 1]
            # Sums over at most 64 terms in a few dozen operations, in another order.
            torch.testing.assert_close(found, alone, rtol=0, atol=4_096 * unit(torch.float32))
            start += len(ids)
            if start < len(losses):
                assert losses[start - 1] == 0  # the first token of a text is asked of nobody
        whole = model(**batch).loss
    scored = batch["labels"][:, 1:] != IGNORED
    every = functional.cross_entropy(logits[:, :-1][scored], batch["labels"][:, 1:][scored])
    torch.testing.assert_close(whole, every)


def test_rows_are_full_and_windows_that_do_not_fit_each_other_are_cut_but_for_answers() -> None:
    draw = Random(0)
    short = [window(number, draw.randint(4, 100)) for number in range(1_000)]
    rows = packed(short, 128, seed=0, start=START)
    assert sum(len(each.ids) for each in rows.windows) >= FILL * 128 * len(rows)
    assert sorted(each.document for each in rows.windows) == sorted(each.document for each in short)  # none was cut
    assert packed(short, 128, seed=0, start=START).rows == rows.rows != packed(short, 128, seed=1, start=START).rows
    rows = packed([window(number, 80) for number in range(200)], 128, start=START)
    assert sum(len(each.ids) for each in rows.windows) >= FILL * 128 * len(rows)
    assert all(each.ids[0] == START for each in rows.windows)
    answers = packed([window(number, 80, answer=60) for number in range(40)], 128, start=START)
    assert answers.rows == tuple((each,) for each in answers.windows)


@given(st.lists(st.integers(2, 40), min_size=1, max_size=60), st.integers(0, 3), st.booleans())
def test_every_token_is_in_one_row(lengths: list[int], seed: int, begins: bool) -> None:
    texts = [window(number, length) for number, length in enumerate(lengths)]
    rows = packed(texts, 40, seed, START if begins else None)
    assert all(sum(len(each.ids) for each in row) <= 40 for row in rows.rows)
    skipped = 1 if begins else 0  # every piece begins with a token of its own
    for text in texts:
        pieces = [each.ids[skipped:] for each in rows.windows if each.document == text.document]
        assert sorted(token for piece in pieces for token in piece) == sorted(text.ids[skipped:])
        assert max(map(len, pieces)) == len(text.ids) - skipped or len(pieces) > 1


def test_models_are_known_by_what_they_do() -> None:
    assert keeps_texts_apart(tiny_llama())
    assert keeps_texts_apart(tiny_gpt2())
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=97, hidden_size=16, num_hidden_layers=2, state_size=4, use_mambapy=False)
    assert not keeps_texts_apart(MambaForCausalLM(config).eval())


TOKENIZER = character_tokenizer()


def documents(count: int, name: str = "text") -> tuple[Document, ...]:
    return tuple(Document(f"{name}/{n}", f"{name} number {n}") for n in range(count))


def splits(given: tuple[Document, ...], length: int = 9) -> Splits:
    return splits_of(TOKENIZER, "notes", dict.fromkeys(SPLITS, given), length=length)


def train(count: int, length: int) -> TokenWindows:
    found = splits(documents(count), length).train
    assert isinstance(found, TokenWindows)
    return found


def test_documents_stay_in_their_parts_and_the_digest_knows_them() -> None:
    parts = {split: documents(4, split) for split in SPLITS}
    found = splits_of(TOKENIZER, "mine", parts, length=8)
    assert (found.name, found.pad_id) == ("mine", TOKENIZER.pad_token_id)
    for split in SPLITS:
        assert {each.document for each in getattr(found, split).windows} == {each.id for each in parts[split]}
    swapped = splits_of(TOKENIZER, "mine", {**parts, "train": parts["test"], "test": parts["train"]}, length=8)
    assert found.digest != swapped.digest


def test_labels_are_the_ids_that_are_scored() -> None:
    found = splits(tuple(Document(f"{number}", f"2+{number}=9\n", "sums", 4) for number in range(10)), 64)
    example = found.test[0]
    ids, labels = example["input_ids"].tolist(), example["labels"].tolist()
    assert ids[0] == TOKENIZER.bos_token_id
    assert labels == [-100] * 5 + ids[5:]
    assert TOKENIZER.decode(ids[5:]) == "9\n"


def test_a_model_of_transformers_computes_the_loss_of_the_scored_tokens() -> None:
    found = splits(documents(12))
    examples = [found.train[index] for index in range(4)]
    model = tiny_llama(vocabulary=len(TOKENIZER))
    with torch.no_grad():
        together = model(**found.collate(examples))
        scored, total = 0, 0.0
        for example in examples:
            logits = model(input_ids=example["input_ids"][None]).logits[0]
            wanted = example["labels"][1:]
            losses = torch.nn.functional.cross_entropy(logits[:-1], wanted, ignore_index=-100, reduction="none")
            scored, total = scored + int((wanted != -100).sum()), total + float(losses.sum())
    assert float(together.loss) == pytest.approx(total / scored, rel=1e-5)


def test_masked_models_are_refused() -> None:
    with pytest.raises(DataError, match=r"\.\.\.ForCausalLM"):
        splits_of(TOKENIZER, "x", dict.fromkeys(SPLITS, documents(3)), length=64, objective="masked_token")


@given(st.integers(2, 9), st.integers(1, 12))
def test_whole_windows_are_of_one_length_and_lose_the_ends_of_documents_alone(length: int, limit: int) -> None:
    found = train(30, length)
    kept = whole(found, length)
    assert {len(window.ids) for window in kept.windows} == {length}
    left_out = Counter(window.document for window in found.windows if window not in kept.windows)
    assert max(left_out.values(), default=0) <= 1, "of a document one window at most, the last"
    positions = [kept.windows.index(window) for window in evenly_spaced(kept, limit).windows]
    count = min(limit, len(kept))
    assert positions == [number * len(kept) // count for number in range(count)]


def test_documents_without_a_whole_window_are_refused_with_the_length_that_fits() -> None:
    found = train(9, 64)
    longest = max(len(window.ids) for window in found.windows)
    with pytest.raises(DataError, match=f"no document to train on has 64 tokens.*use --max-length {longest} or less"):
        whole(found, 64)
    assert len(whole(found, longest))
