"""The model card of an exported model: what it was made of, what it can do as far as the run knows, how to serve it.

The same notes of a stage say whether an evaluation asks the model as it was trained (`trained_with`).
"""
