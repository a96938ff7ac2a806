"""`python -m bfcl_env.augmentation`: the rules as a Markdown table, with the hint that each rule's example gets."""

from bfcl_env import augmentation
from bfcl_env.augmentation.rule import Rule, Situation
from bfcl_env.calls import parse_call
from bfcl_env.episode import Episode
from bfcl_env.scenarios import load_scenarios


def example(rule: Rule) -> Situation:
    """What a rule's example leads to: its last call, the result, and the state after it."""
    owner = rule.owner or "GorillaFileSystem"
    scenario = next(
        item
        for item in load_scenarios("multi_turn_base")
        if (item.id == rule.scene if rule.scene else owner in item.classes)
    )
    with Episode(scenario) as episode:
        for text in rule.example:
            call = parse_call(text, scenario)
            result = episode.execute(call)
        return Situation(scenario, 0, call, result.text, result.error, episode._instances)


def table() -> str:
    """One line for each rule; ends with a line break."""
    lines = ["| rule | for calls of | when | example |", "| --- | --- | --- | --- |"]
    for rule in augmentation.RULES:
        calls = ", ".join(f"`{name}`" for name in rule.functions.split()) or f"any function of {rule.owner}"
        if not rule.owner:
            calls = "any"
        kinds = ", ".join(sorted(kind.value if kind else "no error" for kind in rule.errors))
        when = f"{kinds}: `{rule.pattern}`" if rule.pattern else kinds
        row = (rule.name, calls, when, augmentation.hint(example(rule)) or "")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
