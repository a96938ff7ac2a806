"""One episode of conversation between a model and the BFCL environment; no tokens, no training framework here."""

from .conversation import Conversation, Reply
from .policy import TurnPolicy
from .protocol import get_protocol
from .record import EpisodeRecord, StopReason

__all__ = ["Conversation", "EpisodeRecord", "Reply", "StopReason", "TurnPolicy", "get_protocol"]
