"""The domain retail: orders of an online shop, which an agent cancels, changes, exchanges and takes back for a user."""

from tau_env.retail import reads, writes
from tau_env.shop import Shop

RETAIL = Shop(__name__, reads, writes)
