"""Rules for MathAPI, which has no state: domains of the functions, and the units that it knows."""

from bfcl_env.augmentation.rule import FAULTS, LIMITS, listing, rules_of, sentences, short
from bfcl_env.augmentation.situation import Situation
from bfcl_env.limits import MAX_DIGITS

RULES, rule = rules_of("MathAPI")
SI_UNITS = ("km", "m", "cm", "mm", "um", "nm")
IMPERIAL_UNITS = (
    ("cm", "in"),
    ("m", "ft"),
    ("m", "yd"),
    ("km", "miles"),
    ("kg", "lb"),
    ("celsius", "fahrenheit"),
)
"""Pairs that are converted into each other, in both directions."""


_LISTS = "mean standard_deviation min_value max_value sum_values"


@rule(_LISTS, "empty list", "mean(numbers=[])")
def empty_list(situation: Situation) -> str:
    return "'numbers' is empty. Call it again with at least one number in the list."


@rule("divide percentage", "divide by zero|cannot be zero", "divide(a=1, b=0)")
def division_by_zero(situation: Situation) -> str:
    name = "whole" if situation.call.name == "percentage" else "b"
    return f"'{name}' is 0, and nothing can be divided by it. Check where this value comes from and give another."


@rule("square_root", "negative number", "square_root(number=-4, precision=5)")
def negative_root(situation: Situation) -> str:
    return sentences(
        "'number' must be zero or more.",
        situation.if_visible("absolute_value", "absolute_value gives the size of a negative number."),
    )


@rule(
    "square_root logarithm round_number",
    "must be between|valid range for prec",
    "square_root(number=4, precision=2000)",
    errors=FAULTS | LIMITS,
)
def precision_range(situation: Situation) -> str:
    if situation.call.name == "round_number":
        return f"'decimal_places' must be a whole number from -{MAX_DIGITS} to {MAX_DIGITS}."
    return f"'precision' is a number of digits and must be a whole number from 1 to {MAX_DIGITS}."


@rule("logarithm", "", "logarithm(value=8, base=1, precision=5)")
def logarithm_domain(situation: Situation) -> str:
    return "'value' must be above 0, 'base' must be above 0 and not 1, and 'precision' is a number of digits from 1 on."


@rule("si_unit_conversion", "not supported", "si_unit_conversion(value=1, unit_in='miles', unit_out='km')")
def si_units(situation: Situation) -> str:
    return sentences(
        f"'unit_in' and 'unit_out' must be among {listing(SI_UNITS)}.",
        situation.if_visible("imperial_si_conversion", "imperial_si_conversion knows feet, miles, pounds and degrees."),
    )


@rule("imperial_si_conversion", "not supported", "imperial_si_conversion(value=1, unit_in='km', unit_out='ft')")
def imperial_units(situation: Situation) -> str:
    given = situation.argument("unit_in")
    to = [pair[given == pair[0]] for pair in IMPERIAL_UNITS if given in pair]
    if to:
        return f"{short(given)} can be converted only to {listing(to)}. Choose one of these as 'unit_out'."
    pairs = ", ".join(f"{one} and {other}" for one, other in IMPERIAL_UNITS)
    return f"Units are converted, in both directions, between {pairs}. Write them like this."


@rule("power", "negative power", "power(base=0, exponent=-1)")
def zero_to_negative(situation: Situation) -> str:
    return "0 has no negative powers. Give another 'base', or an 'exponent' of zero or more."


@rule(
    "",
    "too large|out of range|more than .* bits|Exceeds the limit",
    "power(base=9, exponent=99999999)",
    errors=FAULTS | LIMITS,
)
def too_large(situation: Situation) -> str:
    return "The result is too large a number. Check the arguments and give smaller ones."


@rule(
    "",
    "must be a number|must be numbers|NaN|[Ii]nfinity|nvalid",
    "logarithm(value='1e5', base=2, precision=5)",
    errors=FAULTS | LIMITS,
)
def not_a_number(situation: Situation) -> str:
    return "Give plain finite numbers as arguments, without text around them."
