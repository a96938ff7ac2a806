"""What happened in a run: a table for the terminal, and one HTML page that opens without a network.

tables.py      how much the reward of each stage moved
validation.py  held-out tasks
episodes.py    stored episodes
figures.py     all plots
page.py        the page of a run, and the index of runs
pass_rate.py   a table of pass rates, whose rows sources.py finds
"""
