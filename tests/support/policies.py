"""What a model says, turn by turn, and the record of the episode in which it says it."""

from interaction import Conversation, get_protocol

think_xml = get_protocol("think_xml")
ANSWER = think_xml.render_answer("done", "done")
CUT = "cut"  # a message that a token budget cuts off


def say(*calls):
    return think_xml.render_calls(", ".join(call.name for call in calls), calls)


def gold(scenario, turn, calls_a_message=100):
    """What a perfect model says in a turn."""
    calls = scenario.turns[turn].gold
    return [*(say(*calls[at : at + calls_a_message]) for at in range(0, len(calls), calls_a_message)), ANSWER]


def play(scenario, policy):
    """The record of an episode. `policy` is a list of messages, or gives the messages of a turn of the scenario."""
    with Conversation(scenario, think_xml) as conversation:
        conversation.start()
        while not conversation.done:
            for text in policy if isinstance(policy, list) else policy(scenario, conversation.turn):
                if conversation.reply(text, truncated=text == CUT).done:
                    break
            if isinstance(policy, list):
                break
    return conversation.record().to_dict()
