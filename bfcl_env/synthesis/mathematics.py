"""MathAPI."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, Said, op

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

    operations = (
        op("add {second} to {number} | compute {number} plus {second} | work out the sum of {number} and {second}", add={"a": "number", "b": "second"}, notes={"result": "result"}),
        op("subtract {second} from {number} | compute {number} minus {second} | take {second} away from {number}", subtract={"a": "number", "b": "second"}, notes={"result": "result"}),
        op("multiply {number} by {second} | compute {number} times {second} | work out the product of {number} and {second}", multiply={"a": "number", "b": "second"}, notes={"result": "result"}),
        op("divide {number} by {second} | compute {number} over {second} | split {number} into {second} equal shares", divide={"a": "number", "b": "second"}, notes={"result": "result"}),
        op("tell me what percentage {number} is of {second} | compute {number} as a percentage of {second} | express {number} in percent of {second}", percentage={"part": "number", "whole": "second"}, notes={"result": "result"}),
        op("average {several} | compute the mean of {several} | work out the arithmetic mean of {several}", mean={"numbers": "several"}, notes={"result": "result"}),
        op("sum up {several} | compute the total of {several} | add all of {several} together", sum_values={"numbers": "several"}, notes={"result": "result"}),
        op("find the largest of {several} | tell me the maximum of {several} | pick the highest of {several}", max_value={"numbers": "several"}, notes={"result": "result"}),
        op("find the smallest of {several} | tell me the minimum of {several} | pick the lowest of {several}", min_value={"numbers": "several"}, notes={"result": "result"}),
        op("compute the standard deviation of {several} | tell me how spread out {several} are as a standard deviation | work out how far {several} deviate from their mean, as a standard deviation", standard_deviation={"numbers": "several"}, notes={"result": "result"}),
        op("raise {second} to the power {small} | compute {second} to the exponent {small} | work out the power of {second} with exponent {small}", power={"base": "second", "exponent": "small"}, notes={"result": "result"}),
        op("round {fraction} to {places} decimal places | round {fraction}, keeping {places} decimals | give me {fraction} with {places} decimal places", round_number={"number": "fraction", "decimal_places": "places"}, notes={"result": "result"}, weight=1.5),
        op("take the absolute value of {below_zero} | compute the magnitude of {below_zero} | drop the sign of {below_zero}", absolute_value={"number": "below_zero"}, notes={"result": "result"}, weight=0.5),
        op("take the square root of {second} with precision {precision} | compute the root of {second} to a precision of {precision} | work out the square root of {second}, precision {precision}", square_root={"number": "second", "precision": "precision"}, weight=0.6),
        op("compute the base {base} logarithm of {second} with precision {precision} | take the log of {second} to base {base}, precision {precision} | work out the logarithm of {second} in base {base} to a precision of {precision}", logarithm={"value": "second", "base": "base", "precision": "precision"}, weight=0.6),
        op("convert {number} from {unit} to {other_unit} | express {number} {unit} in {other_unit} | tell me how many {other_unit} are {number} {unit}", si_unit_conversion={"value": "number", "unit_in": "unit", "unit_out": "other_unit"}, notes={"result": "result"}, weight=0.7),
        op("convert {number} from {here_unit} to {there_unit} between the metric and the imperial system | express {number} {here_unit} in the other system as {there_unit} | tell me how many {there_unit} are {number} {here_unit}, imperial against metric", imperial_si_conversion={"value": "number", "unit_in": "here_unit", "unit_out": "there_unit"}, notes={"result": "result"}, weight=0.7),
    )  # fmt: skip
