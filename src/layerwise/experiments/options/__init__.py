"""Options that several experiments share, each group a base class of their configurations.

The name of a class is a heading of the help text: `ModelOptions` are "Model options".
"""
