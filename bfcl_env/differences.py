"""Where this environment departs on purpose from BFCL's executor and checker.

Everything else is meant to be equal, with augmentation off: result texts, error texts and the verdicts of turns. Each
entry here has a test of its own that shows both sides, and a test fails for an entry without one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """One deliberate departure."""

    name: str
    official: str
    """What bfcl-eval does."""
    ours: str
    why: str


DIFFERENCES = (
    Difference(
        "call_like_text",
        "rewrites every word before a parenthesis that is the name of a function, also inside string arguments, and "
        "drops the space in between",
        "keeps text as it is",
        "the stored text would contain names of the evaluator's variables, which differ between model and gold",
    ),
    Difference(
        "duplicate_keyword",
        "answers with Python's syntax error",
        "`parse_call` raises CallError; the conversation layer words the feedback",
        "what is not one call is a fault of the format, not of a function",
    ),
    Difference(
        "expressions",
        "evaluates any Python expression: nested calls, arithmetic, comprehensions, attribute access",
        "`parse_call` raises CallError for everything but one call with literal arguments",
        "nothing that a model writes is evaluated",
    ),
    Difference(
        "foreign_names",
        "calls whatever the name means in the evaluator's module, built-in functions and imported modules included",
        "answers as for any unknown function",
        "nothing that a model writes is evaluated",
    ),
    Difference(
        "names_that_are_not_names",
        "evaluates function and argument names that are no identifiers as part of the expression, or answers with a "
        "syntax error",
        "an unknown function, or Python's words for an unexpected argument",
        "names are data; JSON tool calls can contain any text",
    ),
    Difference(
        "not_a_number",
        "NaN and Infinity, which JSON tool calls can contain, are written as unknown Python names and fail",
        "passes them to the function as numbers",
        "calls are data; the function's own answer says more",
    ),
    Difference(
        "lone_surrogates",
        "fails to compile a call whose function or argument name has one, and answers with the codec's error",
        "treats the name like any other and writes lone surrogates in result texts as escapes",
        "JSON can contain them, tokenizers and files cannot",
    ),
    Difference(
        "limits",
        "runs any amount of work, for hours or until memory ends",
        "refuses calls beyond the bounds of `limits` and `calls`, and cuts results, with ErrorKind.LIMIT",
        "one call must not take the process down",
    ),
    Difference(
        "withheld_functions",
        "runs functions that are published in a later turn",
        'answers as for an unknown function; `Episode(withheld="official")` runs them',
        "the task of those turns is to notice that the function is missing",
    ),
    Difference(
        "turns_without_gold",
        "does not judge them",
        "`passed` demands an answer, an unchanged state and no unknown or withheld function; `passed_official` is True",
        "a reward must not pay for junk calls",
    ),
    Difference(
        "shared_cards",
        "long-context tasks share the added credit cards and bookings between all instances of the process, those of "
        "model and gold included",
        "every episode has its own",
        "one rollout would spend another's money, and gold the model's",
    ),
    Difference(
        "shared_tweet_lists",
        "tweets posted without tags or mentions share one list in the process, which `mention` extends",
        "every tweet has its own",
        "one rollout would change the results of every later one",
    ),
    Difference(
        "process_precision",
        "`logarithm` and `square_root` leave their precision behind in mpmath and decimal",
        "both are restored after the call",
        "another thread's or library's numbers would change",
    ),
    Difference(
        "instances_stay",
        "keeps instances under model and task name for ever, so a second run continues the first",
        "an episode starts anew and frees what it made",
        "a group of rollouts has the same model and task",
    ),
)
"""All of them, in no order."""
