"""What options mean that several verbs have: each has its help here once, under its one name."""

from __future__ import annotations

from collections.abc import Mapping

SHARED: Mapping[str, str] = {
    "arm": "Take only the models of this arm.",
    "baseline": "Train the baseline too: in order, or uniformly.",
    "batch_size": "Examples in a step; in fine-tuning 32.",
    "batch_tokens": "Tokens in a batch; by default 4,096, in a sweep what the memory holds.",
    "budget": 'What a plan may cost: "layers=24", "ms=0.75x" or "bytes=0.8x".',
    "context": "Tokens of each text, or of each prompt, when timed.",
    "data": "Folder of the files of published suites.",
    "draws": "Random draws: of orders, of merged models, or of nodes that die.",
    "dtype": "Data type; stored is the checkpoint's, and auto too, but float32 where a CPU computes.",
    "epochs": "Times that examples are read; in fine-tuning at most 10.",
    "learning_rate": "Peak learning rate; in fine-tuning 5e-5.",
    "learning_rates": "Learning rates to sweep, and beyond while the best is at an end; one alone is not swept.",
    "limit": "Examples, at most: images of a split, pairs of a paradigm, sentences of a task.",
    "max_length": "Longest text in tokens; by default 512, in a training 256, in fine-tuning 128.",
    "min_effect": "The smallest effect that counts, in nats per token.",
    "moves": "Changes of a plan: drop, halves, repeat, parallel, reorder, merge, bits; of a route drop, repeat, "
    "reorder.",
    "new_tokens": "Tokens to generate.",
    "nodes": "Nodes that hold layers.",
    "output": "File or folder to write.",
    "overwrite": "Replace the rows of the run, or the files that are there.",
    "password": "Password of EWoK's archive.",
    "plan": "A plan; repeat for more.",
    "push": "Repository of the hub for the finished model and its card; of several models, how names begin.",
    "ray": "Compute on a Ray cluster: local (on this machine), auto, or HOST:PORT; needs layerwise[ray].",
    "replicas": "Nodes that hold each layer.",
    "rounds": "Rounds, in each of which everything is timed once.",
    "seeds": "Repetitions, each with a seed of its own.",
    "size": "Size of the model: tiny, or as published.",
    "steps": "Optimizer steps of each training.",
    "suite": "Suites: pairs, blimp, supplement, ewok, glue, msgs, msgs-ours; to evaluate, files of pairs too.",
    "task_folder": "Folder of lm-eval task files.",
    "task_limit": "Questions of each benchmark, at most.",
    "tasks": "Tasks by name: of lm-eval, or to fine-tune on.",
    "text": "Text file, a folder of them, or hf:DATASET.",
    "tokens": "Score at most N tokens, spread over the documents, or all.",
    "token_file": "Tokens that clients show, one a line; or set LAYERWISE_SWARM_TOKENS.",
    "tokenizer": "Tokenizer, where the model has none, or none is to be learned from the text.",
    "trust_remote_code": "Run code that comes with the model.",
    "width": "Plans that go on from every step, or candidates of each number of layers.",
}
"""The help of an option by its name, for options that are declared without one."""
