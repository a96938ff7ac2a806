"""The command line of train_fctncalling.py: `flags` reads it, `mapping` says it in settings of ours, `results` links.

`__main__` is what a person starts.
"""
