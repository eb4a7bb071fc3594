"""Rows are full, hold every token once, and compute packed texts as if each were alone."""

from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM, PreTrainedModel

from conftest import tiny_llama
from layerwise.data.batches import IGNORED
from layerwise.data.splits import Splits
from layerwise.data.text.packing import FILL, PackedWindows, packed
from layerwise.data.text.tokens import Window
from layerwise.stack.max_length import keeps_texts_apart
from rounding import unit

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
