"""Conversations for the warm start: read from files of any origin, cut to length, held out in part, and trained on."""
