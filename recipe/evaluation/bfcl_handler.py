"""Where BFCL's own command was."""

import sys

if __name__ == "__main__":
    sys.exit("This command is now `python -m bfcl_env.leaderboard.handler`, with the same arguments.")
