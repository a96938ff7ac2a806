"""The domain airline: flights that an agent books, changes and cancels for a user, at 3 p.m. on May 15, 2024."""

from tau_env.airline import reads, writes
from tau_env.airline.database import base
from tau_env.shop import Shop

__all__ = ["DOMAIN", "NAME", "WRITES", "base", "functions", "idle", "load_tasks", "needed", "open", "policy", "user_of"]

DOMAIN = Shop(__name__, reads, writes, base)

NAME, WRITES = DOMAIN.NAME, DOMAIN.WRITES
load_tasks, functions, policy, open = DOMAIN.load_tasks, DOMAIN.functions, DOMAIN.policy, DOMAIN.open
needed, idle, user_of = DOMAIN.needed, DOMAIN.idle, DOMAIN.user_of
