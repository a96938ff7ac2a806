"""A run on its machine: child processes and their end, the nodes of a cluster, closed ports, a fast start."""
