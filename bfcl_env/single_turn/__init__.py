"""BFCL's single-turn categories: one message of calls, judged by names and arguments alone."""
