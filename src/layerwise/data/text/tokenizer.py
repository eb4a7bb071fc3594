"""Tokenizers: the one that belongs to a model, from the Hub, from a folder, or from a llama2.c file.

llama2.c keeps its tokenizer in one binary file (`tok512.bin`), pieces with scores. The neighbouring pair whose union
has the best score is merged first, which is byte-pair encoding, so the file is read into the `tokenizers` library.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from layerwise.bounded import MAX_SETTINGS_SIZE, UnreadableError, kind_of, read_bytes, shortened
from layerwise.data.auto_classes import from_pretrained
from layerwise.errors import DataError, ModelError

UNKNOWN, START, END = "<unk>", "<s>", "</s>"
"""What llama2.c means by its pieces 0, 1 and 2; the file spells them with line breaks around."""

SPECIAL_PIECES = 3
BYTE_PIECES = 256


def load_tokenizer(
    source: str | Path, revision: str | None = None, trust_remote_code: bool = False, kind: Any = "AutoTokenizer"
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a Hub id, a folder, or a GGUF file; `kind` is its class, if known.

    A folder with one `tok*.bin` and no `tokenizer.json` is read as llama2.c's format. Code from the model's repository
    runs only with `trust_remote_code`. Raises `DataError` if there is no usable tokenizer; the message names
    `--tokenizer`.
    """
    folder = Path(source)
    there = kind_of(folder)
    if there not in ("file", "folder", "nothing"):
        raise DataError(f"{source} is a {there}; name a folder with a tokenizer.json by --tokenizer")
    if there == "file" and folder.suffix == ".bin":
        return read_llama2c(folder)
    if folder.is_dir() and not (folder / "tokenizer.json").exists():
        candidates = sorted(folder.glob("tok*.bin"))
        if len(candidates) == 1:
            return read_llama2c(candidates[0])
    try:
        tokenizer: PreTrainedTokenizerBase = from_pretrained(
            kind, source, revision=revision, trust_remote_code=trust_remote_code
        )
    except ModelError as refused:
        raise DataError(f"{refused}, or name another tokenizer with --tokenizer") from refused
    # The Hub client, the tokenizers library and the model classes raise nearly every built-in error here.
    except Exception as error:
        reason = shortened(str(error).strip().split("\n")[0], 200)
        raise DataError(
            f"no tokenizer could be loaded from {source} ({type(error).__name__}: {reason}); "
            "name one with --tokenizer: a Hub id, or a folder with a tokenizer.json"
        ) from error
    if not set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids):
        raise DataError(
            f"{source} has no tokenizer of its own (its vocabulary is empty); "
            "name one with --tokenizer: a Hub id, or a folder with a tokenizer.json"
        )
    return tokenizer


def masking_id(tokenizer: PreTrainedTokenizerBase) -> int:
    token_id: Any = tokenizer.mask_token_id
    if not isinstance(token_id, int):
        raise DataError(
            "this tokenizer has no mask token, so a masked-token loss cannot be computed; "
            "use a decoder's next-token loss, or name a tokenizer with a mask token by --tokenizer"
        )
    return token_id


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    score: float


def read_llama2c(file: Path) -> PreTrainedTokenizerFast:
    """A llama2.c tokenizer file as a fast tokenizer.

    The file: int32 length of the longest piece, then per piece float32 score, int32 byte length, the bytes;
    all little-endian. Piece 0 is unknown, 1 starts a text, 2 ends it, 3 to 258 are the 256 single bytes, used
    for characters that are no piece. A space is put before the text, as the format's encoder does.

    Raises `DataError` when the file is cut short or is not of this format.
    """
    return PreTrainedTokenizerFast(
        tokenizer_object=_byte_pair_encoder(_read_pieces(file)),
        unk_token=UNKNOWN,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        clean_up_tokenization_spaces=False,
    )


def _read_pieces(file: Path) -> list[Piece]:
    try:
        content = read_bytes(file, MAX_SETTINGS_SIZE)
    except UnreadableError as fault:
        raise DataError(f"{file} {fault}; name another tokenizer with --tokenizer") from fault
    pieces: list[Piece] = []
    offset = struct.calcsize("<i")
    header = struct.calcsize("<fi")
    while offset < len(content):
        if offset + header > len(content):
            raise _malformed(file, offset, "a piece is cut short")
        score, length = struct.unpack_from("<fi", content, offset)
        offset += header
        if not 0 <= length <= len(content) - offset:
            raise _malformed(file, offset, f"a piece of {length} bytes does not fit")
        try:
            text = content[offset : offset + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise _malformed(file, offset + error.start, "a piece is not UTF-8") from error
        pieces.append(Piece(text, score))
        offset += length
    bytes_as_written = [f"<0x{value:02X}>" for value in range(BYTE_PIECES)]
    if [each.text for each in pieces[SPECIAL_PIECES : SPECIAL_PIECES + BYTE_PIECES]] != bytes_as_written:
        raise _malformed(file, len(content), "pieces 3 to 258 should be <0x00> to <0xFF>")
    return pieces


def _malformed(file: Path, offset: int, problem: str) -> DataError:
    return DataError(
        f"{file} is not a llama2.c tokenizer: {problem} at byte {offset}; "
        "copy the file again, or name another tokenizer with --tokenizer"
    )


def _byte_pair_encoder(pieces: list[Piece]) -> tokenizers.Tokenizer:
    names = [UNKNOWN, START, END, *(piece.text for piece in pieces[SPECIAL_PIECES:])]
    vocabulary = {name: number for number, name in enumerate(names)}
    encoder = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges(pieces, vocabulary),
            unk_token=UNKNOWN,
            byte_fallback=True,
        )
    )
    encoder.normalizer = normalizers.Prepend(" ")
    encoder.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, vocabulary[START])]
    )
    encoder.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return encoder


def _merges(pieces: list[Piece], vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    merged = sorted(pieces[SPECIAL_PIECES + BYTE_PIECES :], key=lambda piece: -piece.score)
    return [
        (piece.text[:cut], piece.text[cut:])
        for piece in merged
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in vocabulary and piece.text[cut:] in vocabulary
    ]
