"""From a command line to a process that is watched: composing, starting, and what an earlier one left behind."""
