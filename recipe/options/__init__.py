"""Every setting there is, what it is by default on each hardware profile, and what the files say about it."""
