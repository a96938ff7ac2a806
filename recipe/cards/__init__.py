"""The model card of an exported model: what it was made of, what it can do as far as the run knows, how to serve it."""
