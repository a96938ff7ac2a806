"""Rules for MathAPI, which has no state: domains of the functions, and the units that it knows."""

from bfcl_env.augmentation.rule import FAULTS, LIMITS, Rule, listing, sentences, short
from bfcl_env.augmentation.situation import Situation
from bfcl_env.limits import MAX_DIGITS

_CLASS = "MathAPI"
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


def empty_list(situation: Situation) -> str:
    """Give numbers."""
    return "'numbers' is empty. Call it again with at least one number in the list."


def division_by_zero(situation: Situation) -> str:
    """Which argument."""
    name = "whole" if situation.call.name == "percentage" else "b"
    return f"'{name}' is 0, and nothing can be divided by it. Check where this value comes from and give another."


def negative_root(situation: Situation) -> str:
    """Zero or more."""
    return sentences(
        "'number' must be zero or more.",
        situation.if_visible("absolute_value", "absolute_value gives the size of a negative number."),
    )


def logarithm_domain(situation: Situation) -> str:
    """What has a logarithm."""
    return "'value' must be above 0, 'base' must be above 0 and not 1, and 'precision' is a number of digits from 1 on."


def precision_range(situation: Situation) -> str:
    """The allowed numbers of digits."""
    if situation.call.name == "round_number":
        return f"'decimal_places' must be a whole number from -{MAX_DIGITS} to {MAX_DIGITS}."
    return f"'precision' is a number of digits and must be a whole number from 1 to {MAX_DIGITS}."


def si_units(situation: Situation) -> str:
    """All SI units, and where the others are."""
    return sentences(
        f"'unit_in' and 'unit_out' must be among {listing(SI_UNITS)}.",
        situation.if_visible("imperial_si_conversion", "imperial_si_conversion knows feet, miles, pounds and degrees."),
    )


def imperial_units(situation: Situation) -> str:
    """The units that the given one can be converted to, or all pairs."""
    given = situation.argument("unit_in")
    to = [pair[given == pair[0]] for pair in IMPERIAL_UNITS if given in pair]
    if to:
        return f"{short(given)} can be converted only to {listing(to)}. Choose one of these as 'unit_out'."
    pairs = ", ".join(f"{one} and {other}" for one, other in IMPERIAL_UNITS)
    return f"Units are converted, in both directions, between {pairs}. Write them like this."


def zero_to_negative(situation: Situation) -> str:
    """No such number."""
    return "0 has no negative powers. Give another 'base', or an 'exponent' of zero or more."


def too_large(situation: Situation) -> str:
    """Smaller numbers."""
    return "The result is too large a number. Check the arguments and give smaller ones."


def not_a_number(situation: Situation) -> str:
    """Plain numbers."""
    return "Give plain finite numbers as arguments, without text around them."


_LISTS = "mean standard_deviation min_value max_value sum_values"

RULES = (
    Rule("empty_list", _CLASS, _LISTS, "empty list", empty_list, ("mean(numbers=[])",)),
    Rule(
        "division_by_zero",
        _CLASS,
        "divide percentage",
        "divide by zero|cannot be zero",
        division_by_zero,
        ("divide(a=1, b=0)",),
    ),
    Rule(
        "negative_root",
        _CLASS,
        "square_root",
        "negative number",
        negative_root,
        ("square_root(number=-4, precision=5)",),
    ),
    Rule(
        "precision_range",
        _CLASS,
        "square_root logarithm round_number",
        "must be between|valid range for prec",
        precision_range,
        ("square_root(number=4, precision=2000)",),
        FAULTS | LIMITS,
    ),
    Rule("logarithm_domain", _CLASS, "logarithm", "", logarithm_domain, ("logarithm(value=8, base=1, precision=5)",)),
    Rule(
        "si_units",
        _CLASS,
        "si_unit_conversion",
        "not supported",
        si_units,
        ("si_unit_conversion(value=1, unit_in='miles', unit_out='km')",),
    ),
    Rule(
        "imperial_units",
        _CLASS,
        "imperial_si_conversion",
        "not supported",
        imperial_units,
        ("imperial_si_conversion(value=1, unit_in='km', unit_out='ft')",),
    ),
    Rule("zero_to_negative", _CLASS, "power", "negative power", zero_to_negative, ("power(base=0, exponent=-1)",)),
    Rule(
        "too_large",
        _CLASS,
        "",
        "too large|out of range|more than .* bits|Exceeds the limit",
        too_large,
        ("power(base=9, exponent=99999999)",),
        FAULTS | LIMITS,
    ),
    Rule(
        "not_a_number",
        _CLASS,
        "",
        "must be a number|must be numbers|NaN|[Ii]nfinity|nvalid",
        not_a_number,
        ("logarithm(value='1e5', base=2, precision=5)",),
        FAULTS | LIMITS,
    ),
)
