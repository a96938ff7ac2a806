"""Keys and passwords, masked wherever something is written or printed: by the names of settings, and in addresses."""

import re
from typing import Any

MASK = "***"
NO_SECRETS = re.compile(
    r"(prompt|reward_fn|image|video|audio|messages|tools|thinking|teacher|response|data_source|reward_model)_key$"
    r"|(gamma|lam|dp|eos|bos|pad)_token$|^KEY$"
)
"""Settings of verl's and of tokenizers that end like a key's; and as messages say KEY=VALUE."""

_NAME = r"[\w-]{0,99}(?:KEYS?|TOKEN|SECRET\w*|PASSW\w*|CREDENTIAL\w*|AUTHORIZATION)"
_SECRET = re.compile(rf"{_NAME}$", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{oc\.env:\w+\}")
_ADDRESS = re.compile(r"://(?:[^\s/@:'\"]{0,500}:(?!\d+/)[^\s'\"]{0,500}|[^\s/'\"]{0,500})@")
_VALUE = r"(\\*'[^']{0,999}'|\\*\"[^\"]{0,999}\"|\$\{[^}]{0,999}\}|\[[^]]{0,999}\]|[^\s,;&}\]]+)"
_PAIR = re.compile(rf"\b({_NAME})(\\*['\"]?\s*[=:]\s*(?:Bearer\s+)?){_VALUE}", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether what has this name is nobody else's business."""
    return _SECRET.search(name) is not None and NO_SECRETS.search(name) is None


def masked_text(text: str) -> str:
    """A text without the passwords in addresses, and without the values in `api_key=value` and `"api_key": value`."""

    def pair(found: re.Match[str]) -> str:
        name, between, value = found.groups()
        sentence = between.strip() == ":" and name.lower() in ("key", "keys", "token")
        return found[0] if sentence or not is_secret(name) or _REFERENCE.fullmatch(value) else f"{name}{between}{MASK}"

    return _PAIR.sub(pair, _ADDRESS.sub(f"://{MASK}@", text))


def masked(value: Any, secret: bool = False) -> Any:
    """The same of plain containers; `secret` masks all but nothing, truth values and references to the environment."""
    if isinstance(value, dict):
        return {name: masked(item, secret or is_secret(str(name))) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, secret) for item in value]
    if secret and value not in (None, "", True, False) and not _REFERENCE.fullmatch(str(value)):
        return MASK
    return masked_text(value) if isinstance(value, str) else value
