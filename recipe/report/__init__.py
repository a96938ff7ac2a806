"""What happened in a run: a table for the terminal, and one HTML page that opens without a network."""
