"""The domain airline: flights that an agent books, changes and cancels for a user, at 3 p.m. on May 15, 2024."""

from tau_env.airline import reads, writes
from tau_env.shop import Shop

AIRLINE = Shop(__name__, reads, writes)
