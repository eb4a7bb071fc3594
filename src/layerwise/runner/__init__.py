"""Parts that all verbs share: arguments, runs, tasks, progress, resuming, and YAML recipes."""
