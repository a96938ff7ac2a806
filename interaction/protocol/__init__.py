"""Protocols by name. To add one, write a file and list its class in PROTOCOLS; README.md here shows how."""

from __future__ import annotations

from .base import REVEAL_SENTENCE, FormatError, Message, Parsed, Protocol
from .docs import DOC_STYLES, DocStyle
from .hermes import Hermes
from .llama3_json import Llama3Json
from .python_calls import PythonCalls
from .think_xml import ThinkXml
from .toolbench import ToolBench

PROTOCOLS: dict[str, type[Protocol]] = {
    protocol.name: protocol for protocol in (ThinkXml, Hermes, Llama3Json, PythonCalls, ToolBench)
}


def get_protocol(name: str, *, docs: DocStyle = "json") -> Protocol:
    """The protocol called `name`.

    Raises:
        ValueError: there is no such protocol or documentation style.
    """
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}; known: {', '.join(sorted(PROTOCOLS))}")
    if docs not in DOC_STYLES:
        raise ValueError(f"unknown documentation style {docs!r}; known: {', '.join(DOC_STYLES)}")
    return PROTOCOLS[name](docs=docs)


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
