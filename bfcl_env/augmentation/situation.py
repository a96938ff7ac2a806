"""What a rule may look at."""

from dataclasses import dataclass
from typing import Any

from bfcl_env.scenarios import Scenario
from bfcl_env.source import function_docs, function_owners
from interaction.call import Call
from interaction.outcome import ErrorKind


@dataclass(frozen=True, slots=True)
class Situation:
    """One executed call with its result, and the state after it. Read-only for rules."""

    scenario: Scenario
    turn: int
    call: Call
    text: str
    error: ErrorKind | None
    instances: dict[str, Any]

    @property
    def visible(self) -> frozenset[str]:
        """Names of the functions that can be called in this turn."""
        return self.scenario.visible(self.turn)

    @property
    def withheld(self) -> tuple[str, ...]:
        """Names that must not occur in any advice."""
        return self.scenario.withheld(self.turn)

    @property
    def class_name(self) -> str:
        """The class of the called function."""
        return function_owners()[self.call.name]

    @property
    def instance(self) -> Any:
        """The instance that executed the call."""
        return self.instances[self.class_name]

    @property
    def parameters(self) -> dict[str, dict]:
        """Documented parameters of the called function, by name."""
        return function_docs()[self.class_name][self.call.name]["parameters"]["properties"]

    @property
    def required(self) -> frozenset[str]:
        """Names of the parameters that must be given."""
        return frozenset(function_docs()[self.class_name][self.call.name]["parameters"].get("required", ()))

    def argument(self, name: str) -> Any:
        """The value given for an argument, or None."""
        return self.call.arguments.get(name)

    def if_visible(self, names: str, text: str, otherwise: str = "") -> str:
        """The text if all these functions (spaces between) can be called now, otherwise the other one."""
        return text if self.visible.issuperset(names.split()) else otherwise
