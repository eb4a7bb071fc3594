"""Experiments: one frozen configuration and one runner each; what Python, the command line and a YAML file all call.

A configuration (`Sweep`, `Diagnosis`, ...) is a frozen dataclass of options. An option has its one home there: its
default, its help text and its bounds. It names a generator, which opens the model and the data, says what it is about,
and asks for units of work (`engines`); `perform` carries any of them out, anywhere, with any `Reporter`.
"""
