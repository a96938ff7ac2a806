"""Where `passed` departs on purpose from BFCL's verdict, and the two places where `passed_official` does.

Everything else is meant to be equal: verdicts and kinds of mismatches. Each entry here has a test of its own that shows
both sides, and a test fails for an entry without one.
"""

from bfcl_env.differences import Difference

DIFFERENCES = (
    Difference(
        "pairing",
        "gives each accepted call the first call that fits, and fails if a later one is left without",
        "`passed` asks whether any pairing fits",
        "where an accepted call allows more than another, the verdict would hang on the order of the calls: gold of "
        "parallel_178 in reverse order fails",
    ),
    Difference(
        "quoted_elements",
        "keeps the quotes of strings in a Java array, cuts the first and last letter of those in an ArrayList whether "
        "they are quotes or not, and ends an element at a comma within quotes",
        "quotes are taken off where they are, and protect what is between them",
        "gold of eight Java tasks fails, whatever a model writes",
    ),
    Difference(
        "untyped_elements",
        "reads the elements of a Java or JavaScript list of `any` as texts, quotes included",
        "reads each as the literal it is",
        "gold of simple_java_36 and simple_java_65 holds numbers and truth values",
    ),
    Difference(
        "nested_literals",
        "ends a JavaScript object at the first `}` and an array at the first `]`, and takes quotes off in an object "
        "before it asks whether a value is a number",
        "literals may stand in one another, 20 levels deep, and what is quoted is a text",
        "an object within an object can never be right, and '5' is not 5",
    ),
    Difference(
        "whole_literal",
        "looks for a collection anywhere in a Java text, and at the start of a JavaScript one, and ignores the rest",
        "the text must be the literal and nothing else but a `;`",
        "`[1, 2].concat(more)` is not the list [1, 2]; a reward must not pay for what follows",
    ),
    Difference(
        "bare_values",
        "takes an accepted value of an object's key that stands without its list for the list of its letters",
        "takes it for the one accepted value",
        "gold of simple_java_64 fails, whatever a model writes",
    ),
    Difference(
        "whole_numbers_in_lists",
        "accepts 5 for 5.0 as an argument, but not in a list or tuple of floats",
        "accepts it in both",
        "JSON does not tell them apart, and most models write whole numbers without a point",
    ),
    Difference(
        "truth_values",
        "compares with Python's ==, by which True is 1 and False is 0, in objects, and in lists of which it does not "
        "check the elements",
        "a truth value is equal to truth values only",
        "they are different answers",
    ),
    Difference(
        "punctuation",
        "drops spaces and ,./-_*^ before it compares texts, so that '-' is the empty text, the mark of what may be "
        "left out, and ',' is any other separator",
        "texts of which nothing is left must be equal as they are",
        "'-' would be right for every optional text of every task",
    ),
    Difference(
        "number_texts",
        "drops points and signs from texts that are numbers: '5.5' is '55', and '-5' is '5'",
        "if both are numbers, they must be equal as numbers too",
        "they are different answers",
    ),
    Difference(
        "positional",
        "drops positional arguments when it decodes a message",
        "one that could not be bound to a name is an unexpected argument",
        "what was written should not count as if it had not been",
    ),
    Difference(
        "raises",
        "ends with an exception where a message is not as it expects: a whole number beyond a float's range, elements "
        "that are no objects, 12n with a line feed behind",
        "both verdicts are false",
        "nothing a model writes may stop a run",
    ),
    Difference(
        "limits",
        "takes time that grows exponentially, or with the square, in the length of some texts",
        "beyond the bounds of `interaction.call`, and of MAX_CALLS, both verdicts are false with the kind `limit`",
        "one message must not hold up a batch",
    ),
)
"""All of them, in no order. The last two are those where `passed_official` is not BFCL's verdict."""
