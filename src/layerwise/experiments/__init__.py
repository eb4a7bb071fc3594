"""Experiments: one frozen configuration and one runner each; what Python, the command line and a YAML file all call.

A configuration (`Sweep`, `Diagnosis`, ...) is a frozen dataclass of options. An option has its one home there: its
default, its help text and its bounds. `prepare` opens the model and the data and returns a `Prepared`, which knows the
manifest, the cost, and how to carry the experiment out; `perform` runs any of them, anywhere, with any `Reporter`.
"""
