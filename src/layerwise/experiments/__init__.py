"""Experiments: one frozen configuration and one runner each, shared by Python, the command line and YAML files.

An option's default, help text and bounds are defined in the configuration alone. The configuration names a generator
that opens the model and yields units of work (`engines`); `perform` carries any of them out.
"""
