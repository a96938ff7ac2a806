"""The domain retail: orders of an online shop, which an agent cancels, changes, exchanges and takes back for a user."""

from tau_env.retail import reads, writes
from tau_env.retail.database import base
from tau_env.shop import Shop

__all__ = ["DOMAIN", "NAME", "WRITES", "base", "functions", "idle", "load_tasks", "needed", "open", "policy", "user_of"]

DOMAIN = Shop(__name__, reads, writes, base)

NAME, WRITES = DOMAIN.NAME, DOMAIN.WRITES
load_tasks, functions, policy, open = DOMAIN.load_tasks, DOMAIN.functions, DOMAIN.policy, DOMAIN.open
needed, idle, user_of = DOMAIN.needed, DOMAIN.idle, DOMAIN.user_of
