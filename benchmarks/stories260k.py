"""The published model stories260K as a Hugging Face folder with its tokenizer, and stories that it tells as text.

    python benchmarks/stories260k.py FOLDER /tmp/stories        # FOLDER: config.json, model.safetensors, tok512.bin
    layerwise search /tmp/stories/model --text /tmp/stories/text --budget layers=4 --latency

`tok512.bin` is the tokenizer of llama2.c: pieces with scores, merged by the best-scored pair. The same merges, in the
order of their scores, are one of the library tokenizers; how many stories it encodes as they were drawn is printed.
The stories are drawn from the model itself, at temperature 1 and from seeds, each to its end: text of the kind that it
was trained on, where that text is not at hand.
"""

from __future__ import annotations

import argparse
import shutil
import struct
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
SPECIAL = (UNKNOWN, BEGIN, END)


def pieces_of(file: Path) -> list[tuple[str, float]]:
    """The pieces and their scores, in the order of their numbers."""
    data = file.read_bytes()
    pieces, place = [], 4
    while place < len(data):
        score, length = struct.unpack_from("<fi", data, place)
        text = data[place + 8 : place + 8 + length].decode()
        pieces.append((SPECIAL[len(pieces)] if len(pieces) < len(SPECIAL) else text, score))
        place += 8 + length
    return pieces


def tokenizer_of(pieces: list[tuple[str, float]]) -> PreTrainedTokenizerFast:
    """The tokenizer that merges the pair with the best score first."""
    vocabulary = {text: number for number, (text, _) in enumerate(pieces)}
    ranked = sorted(
        ((score, text) for text, score in pieces if len(text) > 1 and not text.startswith("<")), reverse=True
    )
    merges = [
        (text[:cut], text[cut:])
        for _, text in ranked
        for cut in range(1, len(text))
        if text[:cut] in vocabulary and text[cut:] in vocabulary
    ]
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=UNKNOWN, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend(" "), normalizers.Replace(Regex("^  "), " ")])
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token=UNKNOWN, bos_token=BEGIN, eos_token=END, pad_token=UNKNOWN
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--stories", type=int, default=600)
    parser.add_argument("--tokens", type=int, default=240, help="of a story, at most")
    options = parser.parse_args()
    model_folder, texts = options.output / "model", options.output / "text"
    texts.mkdir(parents=True)
    model_folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(options.folder / name, model_folder / name)
    tokenizer = tokenizer_of(pieces_of(options.folder / "tok512.bin"))
    tokenizer.save_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    torch.manual_seed(0)
    batch, same, lines = 50, 0, []
    for _ in range(0, options.stories, batch):
        begin = torch.full((batch, 1), tokenizer.bos_token_id)
        written = model.generate(
            begin,
            attention_mask=torch.ones_like(begin),
            max_new_tokens=options.tokens,
            do_sample=True,
            top_k=0,
            eos_token_id=[tokenizer.bos_token_id, tokenizer.eos_token_id],
            pad_token_id=tokenizer.eos_token_id,
        )
        for row in written[:, 1:].tolist():
            ends = [row.index(number) for number in (tokenizer.bos_token_id, tokenizer.eos_token_id) if number in row]
            story = row[: min(ends, default=len(row))]
            text = tokenizer.decode(story)
            same += tokenizer(text, add_special_tokens=False)["input_ids"] == story
            lines.append(text)
    for number, text in enumerate(lines):
        (texts / f"{number:04}.txt").write_text(text + "\n", encoding="utf-8")
    print(f"{len(lines)} stories in {texts}; {same} of them are encoded as they were written")
    print(lines[0][:300])


if __name__ == "__main__":
    main()
