"""What the loss sees with the templates of published models, and what becomes of conversations that are too long."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig
from support import chat_templates

from recipe.conversations.files import Conversation
from recipe.conversations.lengths import Template, fit
from recipe.conversations.prepare import write_side
from recipe.errors import PreflightError
from recipe.settings import compose


@pytest.fixture(scope="module")
def data() -> DictConfig:
    return compose("sft", ["sft_hardware=tiny"], group="sft_hardware").data


TOKENIZERS: dict[str, tuple[Callable[[], Any], str]] = {
    "Qwen2": (chat_templates.qwen2, "<|im_end|>\n"),
    "Llama-3.1": (chat_templates.llama31, "<|eot_id|>"),
}
"""Each with what its template writes after a message."""


@pytest.fixture(params=TOKENIZERS)
def model(request: pytest.FixtureRequest) -> tuple[Any, str]:
    make, end = TOKENIZERS[request.param]
    return make(), end


def talk(*texts: str, first: str = "user") -> Conversation:
    """The user and the model in turns; a text may begin with another role and a colon."""
    messages, role = [], first
    for text in texts:
        named, _, rest = text.partition(": ")
        role, text = (named, rest) if named in ("system", "user", "assistant") else (role, text)
        messages.append({"role": role, "content": text})
        role = "user" if role == "assistant" else "assistant"
    return Conversation("chat.jsonl, line 1", tuple(messages))


TALKS = {
    "one turn": talk("Rain?", "No."),
    "several turns": talk("Rain?", "No.", "Snow?", "Yes, 3 cm."),
    "a system message": talk("system: Be brief.", "user: Rain?", "No."),
    "a call and its result": talk("Rain?", 'Action: rain\nAction Input: {"city": "Oslo"}', "wet", "Yes."),
    "results side by side": talk("Rain?", "Two calls.", "wet", "user: dry", "It depends."),
    "two messages of the model": talk("Rain?", "Wait.", "assistant: No."),
    "the user last": talk("Rain?", "No.", "Thanks."),
    "the model greets": talk("system: Greet.", "assistant: Hello.", "Rain?", "No."),
    "line ends and quotes": talk("Rain?\n\n'Oslo'", 'No:\n\n\t"dry"\n- so'),
    "marks of the other model": talk("Rain? <|eot_id|><|im_start|>", "[INST] No. [/INST]"),
}


def rows_of(tokenizer: Any, conversations: Sequence[Conversation], data: DictConfig, folder: Path) -> Any:
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    write_side(conversations, folder / "train.parquet")
    return MultiTurnSFTDataset(str(folder / "train.parquet"), tokenizer, data)


@pytest.mark.parametrize("name", TALKS)
def test_the_loss_sees_every_word_of_the_model_and_no_other(
    name: str, model: tuple[Any, str], data: DictConfig, tmp_path: Path
) -> None:
    (tokenizer, end), one = model, TALKS[name]
    fitted = fit([one], Template(tokenizer, "MODEL", data), 2048, "error")
    row = rows_of(tokenizer, fitted.conversations, data, tmp_path)[0]
    learned = tokenizer.decode(row["input_ids"][row["loss_mask"].bool()])
    assert learned == "".join(item["content"] + end for item in one.messages if item["role"] == "assistant")
    whole = tokenizer.apply_chat_template(list(one.messages), tokenize=True)["input_ids"]
    assert row["input_ids"].tolist() == whole


def test_a_template_that_the_loss_would_see_otherwise_is_refused(data: DictConfig) -> None:
    def refusal(template: str, conversation: Conversation = TALKS["several turns"]) -> str:
        with pytest.raises(PreflightError) as error:
            fit([conversation], Template(chat_templates.qwen2(template), "MODEL", data), 2048, "error")
        assert "\n" not in str(error.value)
        return str(error.value)

    text = refusal(chat_templates.THINKS_LAST)
    assert "chat.jsonl, line 1" in text and "data.ignore_input_ids_mismatch=true" in text
    assert "lets the model begin with '<|im_start|>assistant\\n<think>\\n'" in refusal(chat_templates.OPENS_THOUGHT)
    assert "refuses messages with the roles user, user: TemplateError" in refusal(chat_templates.ALTERNATES)


def test_message_by_message_is_trained_on_where_that_is_asked_for(data: DictConfig, tmp_path: Path) -> None:
    data = data.copy()
    data.ignore_input_ids_mismatch = True
    tokenizer, one = chat_templates.qwen2(chat_templates.THINKS_LAST), TALKS["several turns"]
    row = rows_of(tokenizer, fit([one], Template(tokenizer, "M", data), 99, "error").conversations, data, tmp_path)[0]
    assert tokenizer.decode(row["input_ids"][row["loss_mask"].bool()]) == "No.<|im_end|>\nYes, 3 cm.<|im_end|>\n"


LONG = talk("Rain?", "No.", "word " * 40, "Well.", "again " * 40, "Never.")


def ends(tokenizer: Any, one: Conversation) -> list[int]:
    """Tokens up to each message, by the template on its own."""
    messages = list(one.messages)
    return [
        len(tokenizer.apply_chat_template(messages[:end], tokenize=True)["input_ids"])
        for end in range(1, len(messages) + 1)
    ]


def test_what_is_too_long_ends_after_the_last_whole_message_of_the_model_that_fits(
    model: tuple[Any, str], data: DictConfig, tmp_path: Path
) -> None:
    tokenizer, _ = model
    template, at = Template(tokenizer, "MODEL", data), ends(tokenizer, LONG)
    for limit, left in ((at[5], 6), (at[5] - 1, 4), (at[4], 4), (at[3], 4), (at[3] - 1, 2), (at[1], 2)):
        fitted = fit([LONG], template, limit, "messages")
        (one,) = fitted.conversations
        assert one.messages == LONG.messages[:left] and fitted.cut == (left < 6) and not fitted.left_out
        assert len(rows_of(tokenizer, [one], data, tmp_path)[0]["input_ids"]) == at[left - 1] <= limit
    fitted = fit([LONG, TALKS["one turn"]], template, at[1] - 1, "messages")
    assert (len(fitted.conversations), fitted.left_out, fitted.cut) == (0, 2, 0)
    assert fitted.too_long == {LONG.place: at[1]}  # both stand in one line


def test_what_is_too_long_is_left_out_whole_or_refused_with_its_place_and_length(
    model: tuple[Any, str], data: DictConfig
) -> None:
    tokenizer, _ = model
    template, total = Template(tokenizer, "MODEL", data), ends(tokenizer, LONG)[-1]
    fitted = fit([TALKS["one turn"], LONG], template, total - 1, "drop")
    assert fitted.conversations == [TALKS["one turn"]] and (fitted.left_out, fitted.cut) == (1, 0)
    assert fitted.too_long == {"chat.jsonl, line 1": total}
    with pytest.raises(PreflightError) as error:
        fit([TALKS["one turn"], LONG], template, total - 1, "error")
    text = str(error.value)
    assert f"1 of 2 conversations have more than data.max_length={total - 1} tokens" in text
    assert f"(chat.jsonl, line 1: {total})" in text and "data.truncation=messages" in text
    assert fit([LONG], template, total, "error").conversations == [LONG]
    assert fit([LONG], template, total - 1, "right").conversations == [LONG], "verl cuts it"
