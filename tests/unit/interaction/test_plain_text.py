"""What a model has the environment repeat stays text: it never becomes a token that ends or begins a message."""

import json

import pytest
from support import gold_episode
from support.control_tokens import ECHO, LLAMA, QWEN, SCENARIO, hidden, tokenizer_with
from tokenizers import AddedToken, normalizers

from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.plain_text import LONG, PIECE, PIECE_ERROR, PlainText, fits
from interaction.protocol import PROTOCOLS

ROW = {"extra_info": {"split": "train", "task_id": SCENARIO.id}, "uid": "u", "session_id": 0}
OTHERS = ["<s>", "</s>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>", "<|>", "<<|im_end|>>", "@@"]


def specials_in(tokenizer, text):
    """Ids of special tokens that a text becomes."""
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return special & set(tokenizer.encode(text, add_special_tokens=False))


def forged(text):
    """Ways in which a text can stand in what is said."""
    return [text, f"a{text}b", text * 3, f"{text[0]}{text}{text[1:]}", f" {text} ", f"{text[:2]}{text}{text[2:]}"]


@pytest.mark.parametrize("specials", [QWEN, LLAMA, OTHERS], ids=["Qwen", "Llama", "others"])
def test_special_tokens_are_broken_up_and_other_text_is_left_exactly_as_it_is(specials):
    tokenizer = tokenizer_with(specials)
    plain = PlainText.of(tokenizer)
    for text in [item for special in specials for item in forged(special)]:
        assert specials_in(tokenizer, text), "else nothing is tested"
        said = plain(text)
        assert not specials_in(tokenizer, said), (text, said)
        assert said.replace(" ", "") == text.replace(" ", ""), "only spaces were added"
    same = [message["content"] for message in gold_messages(SCENARIO, get_protocol("hermes"))]
    for text in (*same, "", "a < b | c > d", "<|", "|>", "\u00e9 \U0001f600 \t\n", "<think>x</think>"):
        assert plain(text) == text
    assert PlainText.of(tokenizer_with(["\u00a4"]))("a\u00a4b") == "a\u00a4b", "one character cannot be broken up"


def test_a_long_text_is_refused_by_the_tokens_of_its_pieces_and_a_short_one_never():
    tokenizer, text = gold_episode.tokenizer(), "ab, " * (LONG // 4)
    texts = [text[: LONG - 9], "a" * 9]  # the second is a piece of hardly any tokens
    pieces = (tokenizer.tokenize(texts[0][at : at + PIECE]) for at in range(0, LONG - 9, PIECE))
    least = sum(len(piece) - PIECE_ERROR for piece in pieces)
    for contents, room, expected in ((texts, least, True), (texts, least - 1, False), ([text[1:]], 0, True)):
        said = [{"role": "user", "content": content} for content in contents]
        assert fits(tokenizer, said, room) is expected, room


def test_other_spellings_are_found_where_the_tokenizer_rewrites_text_first():
    tokenizer = tokenizer_with([])
    tokenizer.add_tokens([AddedToken("<|im_stop|>", special=True, normalized=True)])  # and by no name
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    plain = PlainText.of(tokenizer)
    for text in ("<|IM_stop|>", "\uff1c|im_stop|\uff1e", "a\uff1c\uff5cim_stop\uff5c\uff1e", "<|im_stop|><|IM_STOP|>"):
        assert (len(specials_in(tokenizer, text)), specials_in(tokenizer, plain(text))) == (1, set()), text
    tokenizer.unk_token = "<|im_stop|>"
    assert PlainText(tokenizer)("<|IM_stop|>") == "<|IM_stop|>", "a text that it does not know is left"


def written(name, call):
    """A message with the call, in which no special token stands."""
    if name == "think_xml":
        return f"<think>x</think><tool_call>[{hidden(call)}]</tool_call>"
    if name == "hermes":
        return f"<tool_call>\n{hidden(call)}\n</tool_call>"
    if name == "llama3_json":
        return hidden(call).replace('"arguments"', '"parameters"')
    if name == "toolbench":
        return f"Action: {call['name']}\nAction Input: {hidden(call['arguments'])}"
    values = ", ".join(f"{key}={value!r}" for key, value in call["arguments"].items() if key.isidentifier())
    return f"[{call['name'] if call['name'].isidentifier() else 'cd'}({values})]".replace("<", "\\x3c")


ECHOES = (
    {"name": "echo", "arguments": {"content": ECHO}},  # in a result
    {"name": "cd", "arguments": {"folder": ECHO}},  # in an error, and in its hint
    {"name": "grep", "arguments": {ECHO: 1}},  # in feedback on arguments
    {"name": ECHO, "arguments": {}},  # in feedback on a name
)


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
async def test_a_conversation_has_the_control_tokens_of_its_messages_and_no_others(name, make_loop, engine):
    tokenizer = tokenizer_with(QWEN + LLAMA)
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    start, end = (tokenizer.convert_tokens_to_ids(token) for token in ("<|im_start|>", "<|im_end|>"))
    answer = get_protocol(name, docs="signature").render_answer("x", "done")
    for call in ECHOES:
        talker = engine(tokenizer, [written(name, call), *[answer] * 10])
        loop = make_loop(tokenizer, talker, protocol=name, policy={"environments": {"bfcl": {"augment": True}}})
        output = await loop.run({"temperature": 1.0}, **ROW, global_steps=1)
        said = [number for number, mask in zip(output.response_ids, output.response_mask, strict=True) if not mask]
        requests = len(talker.prompts) - 1
        assert [number for number in said if number in special] == [start, end, start] * requests, call
        assert requests >= len(SCENARIO.turns), "the forged turn has taken none of the user's"


async def test_a_message_longer_than_the_budget_ends_the_episode_without_being_tokenised(make_loop, engine):
    tokenizer = tokenizer_with(QWEN)
    call = {"name": "echo", "arguments": {"content": "ab " * 1000}}
    talker = engine(tokenizer, [f"<think>x</think><tool_call>{json.dumps([call] * 38)}</tool_call>"])
    loop = make_loop(tokenizer, talker, policy={"max_result_chars": None}, response_length=100_000)
    loop.continuous_token_builder.merge_context_tokens = None
    output = await loop.run({"temperature": 1.0}, **ROW, global_steps=1)
    episode = output.extra_fields["episode"]
    assert sum(len(call["result"]) for call in episode["turns"][0]["steps"][0]["calls"]) > LONG
    assert episode["stop_reason"] == "max_tokens" and output.response_ids == talker.outputs[0]
