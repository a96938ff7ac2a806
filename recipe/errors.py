"""What a person can cause and is told in one line: what was given, what was expected, which setting to change."""

from interaction.masked import masked_text


class PreflightError(ValueError):
    """A setting, a file or a machine with which a start cannot work. Its text holds no key."""

    def __init__(self, text: object) -> None:
        super().__init__(masked_text(str(text)))
