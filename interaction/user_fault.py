"""What counts as a fault of whoever plays the user: the episode is played again, and nothing of it is scored."""


class UserFault(RuntimeError):
    """A user model failed, or said what cannot be used; not the model's doing, and not the environment's.

    An environment raises it in `hear` where what the user said makes no sense to it.
    """
