"""Several models side by side, from the rows of their runs.

compared     the runs, what their models are called, and which runs can stand side by side
overlay      curves and layer importance over percent of depth
coincidence  whether the curves of a strategy coincide over percent of depth, pair by pair of models
zones        the clearest zone of similar hidden states of each model, and what lies before and after it
verdicts     every published claim by model, and whether it holds in all of them or in any, corrected over models
tables       all of these as text
chapters     all of these on a page
page         the page
"""
