"""Bad input that concerns files which a user hands in: models, texts, images, tables, schedules, and plans."""

from __future__ import annotations

from dataclasses import replace

from hostile import images, models, plans, tables, texts

# One of each kind, and all that cost next to nothing; the others run in the slow tier.
FAST = frozenset(
    {
        "an empty text", "a text of white space", "one token", "an empty folder", "a null byte inside of a text",
        "a text in UTF-16", "a text of three gigabytes", "a gzip bomb",
        "a gzip file cut short", "a pipe for a text", "a device for a text", "a link that leads to itself",
        "a name of 5,000 characters", "a name with a null byte", "a folder with a name that is no UTF-8",
        "JSON lines, a number of 5,000 digits", "JSON lines, nested too deeply", "JSON lines, half of a surrogate pair",
        "JSON lines, an id that is a list", "a llama2.c piece of two gigabytes", "a pipe for a tokenizer",
        "a tokenizer with an id out of range",
        "a configuration that is a list", "a configuration nested too deeply", "a configuration of a gigabyte",
        "a configuration with a number of 5,000 digits", "architectures that are no list",
        "an architecture that is a function", "an architecture of another model", "a thousand million layers",
        "10^9 words", "a width of 10^30", "no layer", "a layer count in words", "fewer layers than were saved",
        "more layers than were saved", "another width than was saved", "a broken generation configuration",
        "a header of 2^63 bytes", "a tensor of 10^18 numbers", "a pickle called safetensors",
        "a pipe for a file of tensors", "a folder for a file of tensors", "an index that leads out of the folder",
        "an index with absolute paths", "an index that names pickles", "an index of numbers", "an index of nothing",
        "no embedding", "no final norm", "a layer more than was configured", "a second norm",
        "weights of whole numbers", "a classifier that was not saved", "a BERT without its head",
        "from scratch: a thousand million layers",
        "from scratch: a width of 10^9",
        "an EPS called an image", "a PNG cut short", "a PNG of 4,096 million pixels",
        "a PNG in colour with 16 bits a channel", "a TIFF in colour with 16 bits a channel", "images: one class",
        "images: a pipe among them", "images: a file of three gigabytes", "images: an empty parquet file",
        "images: a table with an image that is not there", "image settings nested too deeply", "means in words",
        "pairs: a number of 5,000 digits", "pairs: nested too deeply", "pairs: a sentence that is a number",
        "pairs: a paradigm of half a pair", "pairs: 20,000 columns", "pairs: a cell of a megabyte",
        "pairs: rows of unequal length", "pairs: null bytes in a cell", "pairs: a gzip bomb of empty lines",
        "pairs: an archive cut short", "pairs: an archive of a thousand times its size",
        "pairs: an archive that lies about its size", "pairs: a pipe", "glue: a label in words",
        "glue: a label that is a list", "glue: a word number in words",
        "msgs: a feature in words", "msgs: a feature that is a mapping", "ewok: contexts that are numbers",
        "a schedule: bytes", "a schedule: aliases of aliases", "a schedule: an alias of itself",
        "a schedule: lists nested 10,000 deep", "a schedule: indented 600 deep", "a schedule: a number of 6,000 digits",
        "a schedule: an impossible date for a depth", "a schedule: a hexadecimal number of 6,000 digits",
        "a schedule: a tag of Python's", "a schedule: a key that stands twice", "a schedule: a mapping of 400,000 keys",
        "a schedule: a depth of 10^9", "a schedule: a share that is not finite", "a schedule: a name of a folder above",
        "a schedule: layers of 5,000 digits", "a schedule: a factor of 10^400", "a schedule: JSON nested too deeply",
        "a schedule: a folder", "a schedule: a pipe", "a schedule: a device", "a schedule: a name of 5,000 characters",
        "a schedule: a good one, whose name is a date",
        "a record: a list", "a record: nested too deeply", "a record: a recipe without a wiring",
    }
)  # fmt: skip

_FILES = (*texts.CASES, *models.CASES, *images.CASES, *tables.CASES, *plans.SCHEDULES)
CASES = (*(replace(case, slow=case.name not in FAST) for case in _FILES), *plans.PLANS)

assert {case.name for case in _FILES} >= FAST, FAST - {case.name for case in _FILES}
