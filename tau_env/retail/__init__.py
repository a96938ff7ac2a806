"""The domain retail: orders of an online shop, which an agent cancels, changes, exchanges and takes back for a user."""

from tau_env.retail import reads, writes
from tau_env.retail.database import base
from tau_env.shop import Shop

__all__ = ["DOMAIN", "NAME", "WRITES", "base", "functions", "idle", "load_tasks", "needed", "open", "policy", "user_of"]

_READS = (
    reads.find_user_id_by_name_zip,
    reads.find_user_id_by_email,
    reads.get_order_details,
    reads.get_product_details,
    reads.get_user_details,
    reads.list_all_product_types,
)
_WRITES = (
    writes.cancel_pending_order,
    writes.exchange_delivered_order_items,
    writes.modify_pending_order_address,
    writes.modify_pending_order_items,
    writes.modify_pending_order_payment,
    writes.modify_user_address,
    writes.return_delivered_order_items,
)

DOMAIN = Shop(__name__, _READS, _WRITES, base)

NAME, WRITES = DOMAIN.NAME, DOMAIN.WRITES
load_tasks, functions, policy, open = DOMAIN.load_tasks, DOMAIN.functions, DOMAIN.policy, DOMAIN.open
needed, idle, user_of = DOMAIN.needed, DOMAIN.idle, DOMAIN.user_of
