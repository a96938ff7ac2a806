"""tau2-bench's domain telecom: a phone that does not work, a company's database, and 2,285 sets of faults.

Texts and rewards are tau2-bench's; inspect-evals' copy has another form of JSON. Except: arguments that do not fit the
documentation, and unknown names, are refused before anything runs, in inspect-evals' words; access point settings that
pydantic refuses are refused in our words; numbers that are not finite, and arguments past the bounds of
`interaction.call`, are refused; a VPN that one task breaks is whole in the next one; a bill that refuelling has to make
gets an id that follows from the customer, not a random one; results are cut at 20,000 characters, and half a surrogate
pair is written as an escape.
"""

from tau_env.telecom.database import DONE, WRITES, functions, policy
from tau_env.telecom.database import open_database as open
from tau_env.telecom.needs import needed, needless
from tau_env.telecom.tasks import faults, load_tasks

NAME = "telecom"

__all__ = [
    "DONE",
    "NAME",
    "WRITES",
    "faults",
    "functions",
    "load_tasks",
    "needed",
    "needless",
    "open",
    "policy",
]
