"""A judge behind an OpenAI-compatible endpoint votes on conversations: Solved, Unsure or Unsolved.

question.py    what the judge is shown and asked, and how its reply is read
casting.py     asks for the votes that are missing, and keeps each as soon as it is cast
__main__.py    the command
"""
