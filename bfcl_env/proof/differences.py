"""Where this environment departs on purpose from BFCL's executor and checkers. Each has a test that shows both sides.

Everything else is equal, with augmentation off: result texts, error texts, verdicts and kinds of mismatches.
"""

MULTI_TURN = {
    "call_like_text": "BFCL rewrites words before a parenthesis that are functions, in strings too. It stays as it is.",
    "duplicate_keyword": "BFCL answers with a syntax error. `parse_call` raises CallError: the format is at fault.",
    "expressions": "BFCL evaluates any expression. `parse_call` takes one call with literal arguments.",
    "foreign_names": "BFCL calls built-in functions and imported modules. Here they are unknown functions.",
    "names_that_are_not_names": "BFCL evaluates names that are no identifiers. Here they are unknown names.",
    "not_a_number": "BFCL fails on NaN and Infinity. Here functions get them as numbers.",
    "lone_surrogates": "BFCL fails to compile a name that has one. Here it is a name, and results are escaped.",
    "limits": "BFCL runs any amount of work. Calls beyond the bounds are refused, results are cut.",
    "withheld_functions": "BFCL runs functions of later turns. Here they are unknown, unless withheld=official.",
    "turns_without_gold": "BFCL does not judge them. `passed` demands a refusal, no change and no junk call.",
    "shared_cards": "BFCL shares added cards and bookings between all instances. Every episode has its own.",
    "shared_tweet_lists": "BFCL shares the lists of bare tweets between instances. Every tweet has its own.",
    "process_precision": "BFCL leaves the precision of mpmath and decimal changed. It is restored after the call.",
    "instances_stay": "BFCL keeps instances for ever, so a second run continues the first. Here it starts anew.",
}

SINGLE_TURN = {
    "pairing": "BFCL pairs calls in their order. `passed` asks whether any pairing fits.",
    "quoted_elements": "BFCL cuts or keeps the quotes of Java elements wrongly. Here they protect their content.",
    "untyped_elements": "BFCL reads elements of `any` as texts with quotes. Here each is the literal it is.",
    "nested_literals": "BFCL ends literals at the first bracket. Here they may stand in one another, 20 levels deep.",
    "whole_literal": "BFCL ignores text around a collection. Here the text must be the literal and nothing else.",
    "bare_values": "BFCL takes a value without its list for the list of its letters. Here it is the one value.",
    "whole_numbers_in_lists": "BFCL does not accept 5 for 5.0 in lists. Here it is accepted, as JSON writes both.",
    "truth_values": "BFCL takes True for 1 in objects and some lists. A truth value equals truth values only.",
    "punctuation": "BFCL takes '-' for the empty text. Texts of which nothing is left must be equal as they are.",
    "number_texts": "BFCL takes '5.5' for '55'. Two texts that are numbers must be equal as numbers.",
    "positional": "BFCL drops positional arguments. One that has no name is an unexpected argument.",
    "raises": "BFCL raises for some messages. Both verdicts are false.",
    "limits": "BFCL takes exponential time for some texts. Beyond the bounds both verdicts are false.",
}
"""Of the last two, `passed_official` is not BFCL's verdict either."""
