"""BFCL's own checker and command: its verdict on our conversations, our protocols in its table of models."""
