"""A plan as a checkpoint, of one model or of layers of several: streamed from file to file, or written from memory.

layer_names, tensor_files, stored_model   a checkpoint on the disk: names, ranges of bytes, small files
stored_config, kinds                      its configuration for the visits of a plan
expectation, proof                        what transformers expects of it, and its logits
stream, write                             the two ways to write one
gguf_file                                 a GGUF file, of another one
compact, remote_code, planned             each layer once and a plan over them, and the code that runs it elsewhere
"""

from layerwise.checkpoint.folder import Origin
from layerwise.checkpoint.save import save

__all__ = ["Origin", "save"]
