"""The calculator of retail and airline."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import retail
from tau_env.arithmetic import MAX_CHARS, ArithmeticBound, ArithmeticRefusal, calculate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 2", "4.0"),
        ("  1.005", "1.0"),
        ("2.675*1", "2.67"),
        ("(13.5-2)*3/7", "4.93"),
        ("-(-3)", "3.0"),
        ("+.5", "0.5"),
        ("7//2", "3.0"),
        ("-0.001", "-0.0"),
        ("1" + "+1" * 400, "401.0"),
        ("9" * 320 + ".0", "inf"),
        ("123456789.987", "123456789.99"),
    ],
)
def test_values_are_rounded_to_two_places(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "beginning"),
    [
        ("1/0", "Cannot evaluate expression: division by zero"),
        ("9" * 320, "Cannot evaluate expression: int too large to convert to float"),
        ("abs(1)", "Invalid characters in expression"),
        ("1e5", "Invalid characters in expression"),
        ("1\n", "Invalid characters in expression"),
        ("__import__", "Invalid characters in expression"),
        ("", "Invalid expression: "),
        ("(", "Invalid expression: "),
        ("01", "Invalid expression: "),
        ("(" * 400, "Invalid expression: "),
        ("()", "Invalid expression: only numbers, +, -, *, /, //, ** and parentheses are allowed"),
        ("...", "Invalid expression: only numbers, +, -, *, /, //, ** and parentheses are allowed"),
        ("(1)(2)", "Invalid expression: only numbers, +, -, *, /, //, ** and parentheses are allowed"),
    ],
)
def test_what_has_no_value_is_refused_in_upstreams_words(expression: str, beginning: str) -> None:
    with pytest.raises(ArithmeticRefusal) as raised:
        calculate(expression)
    assert str(raised.value).startswith(beginning)


@pytest.mark.parametrize("expression", ["2**3", "9**9**9**9", "1+2**2", "1" * (MAX_CHARS + 1), "-" * 50_000 + "1"])
def test_powers_and_long_texts_are_not_computed(expression: str) -> None:
    with pytest.raises(ArithmeticBound):
        calculate(expression)


@given(st.text(alphabet="0123456789+-*/(). ", max_size=60))
def test_any_text_has_a_value_or_is_refused(expression: str) -> None:
    result = retail.open(retail.load_tasks()[0]).call(Call("calculate", {"expression": expression}), "agent")
    if result.error is None:
        float(result.text)
    else:
        assert result.error in (ErrorKind.RESULT, ErrorKind.LIMIT)
