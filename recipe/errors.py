"""What a person can cause and is told in one line: what was given, what was expected, which setting to change."""


class PreflightError(ValueError):
    """A setting, a file or a machine with which a start cannot work."""
