"""Golden token sequences: an episode is the prompt, the engine's ids and the environment's ids, with nothing between.

The templates are those of Qwen2.5, Qwen3 and Llama 3.1, as bfcl-eval quotes them. What must stand between two
messages is written out here by hand, so that neither the templates nor verl's code decide what is right.
"""

import threading
from dataclasses import dataclass
from functools import cache

import pytest
from support.chat_templates import quoted_by_bfcl
from support.control_tokens import LLAMA as LLAMA_TOKENS
from support.gold_episode import SCENARIO

import bfcl_env
from bfcl_env import gold
from data_prep.sft import gold_messages
from interaction import Conversation, get_protocol
from interaction.environment import DEFAULT, load_tasks
from recipe.cpu.tiny_policy import CHAT_TEMPLATE, make_tokenizer


@dataclass(frozen=True)
class Family:
    template: str
    hf_model_type: str  # of verl's ContinuousTokenBuilder: qwen2 and qwen3 get Qwen's, llama the generic one
    protocol: str
    head: str  # the prompt up to the text of the system message
    user: str
    end: str  # of a message; the engine says it
    between: str
    assistant: str
    eos: str = ""  # of the tokenizer, where it is not the end of a message
    gap: str = ""  # what the template writes before that of a model's message, and the engine may not

    def said_by_environment(self, text):
        return f"{self.between}{self.user}{text}{self.end}{self.between}{self.assistant}"


CHATML = ("<|im_start|>system\n", "<|im_start|>user\n", "<|im_end|>", "\n", "<|im_start|>assistant\n")
BASE = (*CHATML[:2], "<end>", *CHATML[3:])
LLAMA_HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"
LLAMA_DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
LLAMA_SYSTEM, LLAMA_USER, LLAMA_ASSISTANT = map(LLAMA_HEADER.format, ("system", "user", "assistant"))
LLAMA = (f"<|begin_of_text|>{LLAMA_SYSTEM}{LLAMA_DATES}", LLAMA_USER, "<|eot_id|>", "", LLAMA_ASSISTANT)
SPACED = CHAT_TEMPLATE.replace("<|im_end|>", "{{ ' ' if message['role'] == 'assistant' }}<|im_end|>")
FAMILIES = {
    # Arch-Agent is a Qwen2.5 model; its template is Qwen2.5's except for the default system message, not used here.
    "Qwen2.5": Family(quoted_by_bfcl("arch"), "qwen2", "hermes", *CHATML),
    "Qwen3": Family(quoted_by_bfcl("qwen_fc"), "qwen3", "think_xml", *CHATML),
    "Llama-3.1": Family(quoted_by_bfcl("llama_3_1"), "llama", "llama3_json", *LLAMA),
    "ChatML of a type verl does not know": Family(CHAT_TEMPLATE, "mistral", "think_xml", *CHATML),
    "text before the closing token": Family(SPACED, "qwen2", "think_xml", *CHATML, gap=" "),
    "a base model": Family(CHAT_TEMPLATE.replace("<|im_end|>", "<end>"), "llama", "think_xml", *BASE, eos="<|im_end|>"),
}


@cache
def tokenizer_of(family):
    protocol = get_protocol(family.protocol, docs="signature")
    tokenizer = make_tokenizer([message["content"] for message in gold_messages(SCENARIO, protocol)])
    tokenizer.chat_template = family.template
    if family.end == "<|eot_id|>":
        tokenizer.add_special_tokens({"additional_special_tokens": LLAMA_TOKENS})
        tokenizer.bos_token, tokenizer.eos_token = "<|begin_of_text|>", "<|eot_id|>"
    if family.eos:
        tokenizer.add_tokens([family.end])  # not special, as some base models have it
        tokenizer.eos_token = family.eos
    return tokenizer


def replies_for(family):
    """Gold with one malformed message, and thoughts, which Qwen3's template drops of earlier messages."""
    protocol = get_protocol(family.protocol, docs="signature")
    replies = ["<tool_call>{broken</tool_call>"] if family.protocol != "llama3_json" else ['{"name": "cd", "para']
    for turn in SCENARIO.turns:
        replies += [protocol.render_calls("I look.", turn.gold)] if turn.gold else []
        replies.append(protocol.render_answer("I look.", "Done."))
    return replies


def as_ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


def expected(family, tokenizer, engine):
    """Prompt ids, response ids, mask and log-probabilities, put together from hand-written text and engine ids."""
    policy = {"max_steps_per_turn": 4, "max_format_errors_per_turn": 1, "max_result_chars": 300}
    conversation = Conversation(SCENARIO, get_protocol(family.protocol, docs="signature"), **policy)
    system, user = (message["content"] for message in conversation.start())
    response, mask, log_probs = [], [], []
    for ids, values in zip(engine.outputs, engine.log_probs, strict=True):
        response, mask, log_probs = response + ids, mask + [1] * len(ids), log_probs + values
        reply = conversation.reply(tokenizer.decode(ids, skip_special_tokens=True).removesuffix(family.end))
        if not reply.done:
            (message,) = reply.messages
            missing = "" if ids[-1] == tokenizer.convert_tokens_to_ids(family.end) else family.gap + family.end
            said = as_ids(tokenizer, missing + family.said_by_environment(message["content"]))
            response, mask, log_probs = response + said, mask + [0] * len(said), log_probs + [0.0] * len(said)
    prompt = f"{family.head}{system}{family.end}{family.said_by_environment(user)}"
    return as_ids(tokenizer, prompt), response, mask, log_probs


async def play(make_loop, family, engine):
    tokenizer = tokenizer_of(family)
    loop = make_loop(tokenizer, engine, hf_model_type=family.hf_model_type, protocol=family.protocol)
    return await loop.run({}, extra_info={"split": "train", "task_id": SCENARIO.id}, uid="u")


@pytest.mark.parametrize("name", FAMILIES)
async def test_an_episode_is_exactly_prompt_engine_ids_and_environment_ids(make_loop, engine, name):
    family = FAMILIES[name]
    tokenizer, replies = tokenizer_of(family), replies_for(family)
    (end,) = as_ids(tokenizer, family.end)
    by_letter = [[*(as_ids(tokenizer, letter)[0] for letter in text), end] for text in replies]
    other = "<|eom_id|>" if family.end == "<|eot_id|>" else "<|endoftext|>"
    for talker in (
        engine(tokenizer, replies, ending=family.end),
        engine(tokenizer, by_letter),  # ids that the tokenizer would not choose
        engine(tokenizer, replies, ending=other),  # the environment closes the message
    ):
        output = await play(make_loop, family, talker)
        prompt, response, mask, log_probs = expected(family, tokenizer, talker)
        assert output.extra_fields["episode"]["stop_reason"] == "completed"
        assert (output.record_header["step"], output.record_header["session_id"]) == (-1, 0)
        assert (output.prompt_ids, output.response_ids) == (prompt, response)
        assert (output.response_mask, output.response_logprobs) == (mask, log_probs)
        starts = [place for place, value in enumerate(mask) if place and value > mask[place - 1]]
        assert talker.prompts[1:] == [prompt + response[:start] for start in starts], "all that was said before"
        assert len(set(talker.requests)) == 1
        assert {*map(tuple, talker.stops)} == {(end,)}, "the engine ends there, whatever the tokenizer's end token is"
    assert by_letter[0] != as_ids(tokenizer, tokenizer.decode(by_letter[0])), "or the second one shows nothing"
    assert tokenizer.convert_tokens_to_ids(family.end) not in talker.outputs[0], "or the third one shows nothing"


async def test_nothing_that_takes_time_runs_in_the_thread_of_the_event_loop(make_loop, engine, monkeypatch):
    qwen = tokenizer_of(FAMILIES["Qwen3"])
    load_tasks(DEFAULT)  # as in every episode but the first one of a process
    threads = {}

    def noted(name, function):
        def call(*args, **kwargs):
            threads.setdefault(name, set()).add(threading.get_ident())
            return function(*args, **kwargs)

        return call

    for name in ("begin", "reply"):
        monkeypatch.setattr(Conversation, name, noted(name, getattr(Conversation, name)))
    monkeypatch.setattr(type(qwen), "decode", noted("decode", type(qwen).decode))
    monkeypatch.setattr(bfcl_env, "load_tasks", noted("load", bfcl_env.load_tasks))
    monkeypatch.setattr("bfcl_env.gold._run_gold", noted("gold", gold._run_gold))
    gold._KNOWN.clear()
    await play(make_loop, FAMILIES["Qwen3"], engine(qwen, replies_for(FAMILIES["Qwen3"])))
    assert threads.keys() == {"begin", "reply", "decode", "gold"}, "scenarios are loaded before the first episode"
    assert threading.get_ident() not in set().union(*threads.values())
    assert len(set().union(*threads.values())) == 1
