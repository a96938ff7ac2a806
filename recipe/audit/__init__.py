"""What policies earn that do not solve a task, or only a part of it: a reward that pays them teaches them.

policies.py   the ways to play a task that need no model: gold, parts of gold, and what knows nothing of it
findings.py   what must not be, and the table
played.py     the process that plays; `__main__` watches it
"""
