"""The example of an environment (`library.py`), and the command that copies it under a new name."""
