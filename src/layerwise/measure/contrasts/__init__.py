"""The contrasts that published claims are decided by, each a function from losses (or rows) to rows.

`layerwise.measure.contrasts.contrast` has the arithmetic; the other modules say, claim by claim, what is contrasted
with what. `layerwise.report.claims` turns the rows into verdicts.
"""
