"""MathAPI."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, Said

SI = ("km", "m", "cm", "mm")
SYSTEMS = {"cm": "in", "m": "ft", "km": "miles", "kg": "lb"}


class Mathematics(Domain):
    """No state: what is left to refer to is the last result."""

    owner = "MathAPI"

    def start(self) -> dict[str, Any]:
        return {}

    def number(self) -> Any:
        last = self.world.noted.get("result")
        if isinstance(last, int | float) and self.random.random() < 0.6:
            return Said(last, self.random.choice(("that result", "the last result")))
        return self.names.number(2, 400)

    def fraction(self) -> Any:
        last = self.world.noted.get("result")
        if isinstance(last, float) and last != int(last):
            return Said(last, self.random.choice(("that result", "the last result")))
        return self.names.number(2000, 99999) / 1000

    def second(self) -> Any:
        return self.names.number(2, 300)

    def several(self) -> Any:
        return [self.names.number(1, 400) for _ in range(self.random.randint(3, 5))]

    def small(self) -> Any:
        return self.random.randint(2, 4)

    def places(self) -> Any:
        return self.random.randint(1, 2)

    def precision(self) -> Any:
        return self.random.randint(5, 12)

    def base(self) -> Any:
        return self.random.choice((2, 3, 10))

    def below_zero(self) -> Any:
        return -self.names.number(2, 400)

    def unit(self) -> Any:
        return self.random.choice(SI)

    def other_unit(self) -> Any:
        return self.any_of(unit for unit in SI if unit != self.world.drawn["unit"])

    def here_unit(self) -> Any:
        return self.random.choice((*SYSTEMS, *SYSTEMS.values()))

    def there_unit(self) -> Any:
        both = SYSTEMS | {there: here for here, there in SYSTEMS.items()}
        return both[self.world.drawn["here_unit"]]
