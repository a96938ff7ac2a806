"""Proofs of the environment against gold, faulty conversations and BFCL's own executor."""
