"""The price of a long episode: DAPO's soft overlong punishment (arXiv 2503.14476, equation 13), for conversations.

A score that falls only where the budget ends tells a model nothing about the way there. Here the end of the budget
announces itself. The budget is `data.max_response_length`, less where the model's context is shorter, and everything in
it counts, what the environment said too: that is what cuts an episode.
"""


def overlong_penalty(used: int, budget: int, truncated: bool, *, window: float, penalty: float) -> float:
    """What is taken from the score.

    Args:
        used: tokens of the response, the environment's included.
        budget: tokens it may have.
        truncated: a token limit ended the episode; it pays all.
        window: share of the budget, at its end, over which the price rises linearly from 0.
        penalty: the price at the end of the budget, in units of the score.
    """
    if truncated:
        return penalty
    over = used - (1 - window) * budget
    return penalty * min(1.0, over / (window * budget)) if over > 0 else 0.0
