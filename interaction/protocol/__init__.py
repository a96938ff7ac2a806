"""Protocols by name. To add one, write a file like `think_xml.py` and list its class here."""

from __future__ import annotations

import inspect
from typing import Any

from .base import REVEAL_SENTENCE, FormatError, Message, Parsed, Protocol
from .docs import DOC_STYLES, DocStyle
from .think_xml import ThinkXml

PROTOCOLS: dict[str, type[Protocol]] = {protocol.name: protocol for protocol in (ThinkXml,)}


def get_protocol(name: str, *, docs: DocStyle = "json", **options: Any) -> Protocol:
    """The protocol called `name`; `options` go to its constructor.

    Raises ValueError, listing what is known, for an unknown name, documentation style or option.
    """
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}; known: {', '.join(sorted(PROTOCOLS))}")
    if docs not in DOC_STYLES:
        raise ValueError(f"unknown documentation style {docs!r}; known: {', '.join(DOC_STYLES)}")
    known = inspect.signature(PROTOCOLS[name]).parameters
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise ValueError(f"protocol {name!r} has no option {', '.join(unknown)}; known: {', '.join(known)}")
    return PROTOCOLS[name](docs=docs, **options)


__all__ = [
    "DOC_STYLES",
    "PROTOCOLS",
    "REVEAL_SENTENCE",
    "DocStyle",
    "FormatError",
    "Message",
    "Parsed",
    "Protocol",
    "get_protocol",
]
