"""Templates of chats, and the texts that ``transformers`` makes with them.

Run by Python with ``transformers``, ``trl`` and ``tokenizers``, this file writes
``chat_templates.json`` anew: ``python tests/text/chat_templates.py``. The templates of
`FROM_TRL` are files of ``trl`` 1.16 (Apache License 2.0), which has them from the
models' folders; those in `OWN` are the models', written down.
"""

import datetime
import json
from pathlib import Path

RECORDED = Path(__file__).with_name("chat_templates.json")
FROM_TRL = """llama3 llama3_2 qwen2_5 qwen3 gemma gemma3 phi3_5 llama3_training
    qwen3_training gemma_training phi3_training""".split()
# Mistral 7B Instruct 0.2, SmolLM2 and ChatML.
OWN = {
    "mistral": (
        "{{ bos_token }}{% for message in messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate "
        "user/assistant/user/assistant/...') }}{% endif %}"
        "{% if message['role'] == 'user' %}"
        "{{ '[INST] ' + message['content'] + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}"
        "{{ message['content'] + eos_token}}"
        "{% else %}{{ raise_exception('Only user and assistant roles are supported!') "
        "}}{% endif %}{% endfor %}"
    ),
    "smollm2": (
        "{% for message in messages %}"
        "{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained "
        "by Hugging Face<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
        "+ '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
SPECIAL = """<s> </s> <pad> <|im_start|> <|im_end|> <|eot_id|> <|start_header_id|>
    <|end_header_id|> <start_of_turn> <end_of_turn> <|user|> <|assistant|> <|end|>
    <|system|>""".split()

USER = {"role": "user", "content": "  How tall is <it>, \"naïve\" 'Émile'? \n"}
ANSWER = {"role": "assistant", "content": "As tall\n\nas a tree. "}
NEXT = {"role": "user", "content": "So?"}
SYSTEM = {"role": "system", "content": "Be kind.\n"}
THOUGHT = {"role": "assistant", "content": "Six.", "reasoning_content": "3 + 3\n"}
INLINE = {"role": "assistant", "content": "<think>\n3 + 3\n</think>\n\nSix."}
TOOL = {
    "type": "function",
    "function": {
        "name": "height_of",
        "description": "The height of <a thing>.",
        "parameters": {
            "type": "object",
            "properties": {"thing": {"type": "string", "description": "Ein Ding, ä."}},
            "required": ["thing"],
        },
    },
}
CALL = {"name": "height_of", "arguments": {"thing": "naïve tree"}}
CALLS = {"role": "assistant", "content": "", "tool_calls": [{"function": CALL}]}
RESULT = {"role": "tool", "name": "height_of", "content": '{"metres": 6}'}
CASES = {
    "short": ([USER, ANSWER], {}),
    "turns": ([USER, ANSWER, NEXT, {**ANSWER, "content": "Yes."}], {}),
    "prompt": ([USER, ANSWER, NEXT], {"add_generation_prompt": True}),
    "open": ([USER, ANSWER], {"continue_final_message": True}),
    "system": ([SYSTEM, USER, ANSWER], {}),
    "thought": ([USER, THOUGHT, NEXT, THOUGHT], {}),
    "inline": ([USER, INLINE, NEXT, INLINE], {}),
    "unthinking": (
        [USER, THOUGHT, NEXT],
        {"add_generation_prompt": True, "enable_thinking": False},
    ),
    "tools": (
        [SYSTEM, USER, CALLS, RESULT],
        {"tools": [TOOL], "add_generation_prompt": True},
    ),
    "called": ([USER, CALLS, RESULT, ANSWER], {"tools": [TOOL]}),
    "twice": ([USER, USER, ANSWER], {}),
}


class _Clock:
    """The one date that ``strftime_now`` tells here."""

    @staticmethod
    def now():
        return datetime.date(2024, 7, 26)


def _tokenizer():
    """A tokenizer of bytes that knows the tokens of the templates."""
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    engine = tokenizers.Tokenizer(tokenizers.models.BPE())
    engine.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=SPECIAL,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator(["as tall as a tree, how tall is it?"] * 9, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=engine, **TOKENS)


def record(templates):
    """The texts of all cases, and what of their tokens the assistant says."""
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = _Clock
    tokenizer, rows = _tokenizer(), {}
    for name, template in templates.items():
        tokenizer.chat_template = template
        for case, (messages, options) in CASES.items():
            call = {"tokenize": False, **options}
            try:
                row = {"text": tokenizer.apply_chat_template(messages, **call)}
            except Exception as error:
                row = {"error": str(error)[:80]}
            if "endgeneration" in template and not options and "text" in row:
                tokens = tokenizer.apply_chat_template(
                    messages, return_dict=True, return_assistant_tokens_mask=True
                )
                row["tokens"] = tokens["input_ids"]
                row["mask"] = "".join(map(str, tokens["assistant_masks"]))
            rows[f"{name} {case}"] = row
    return tokenizer.backend_tokenizer.to_str(), rows


if __name__ == "__main__":
    import trl

    folder = Path(trl.__file__).with_name("chat_templates")
    templates = {n: (folder / f"{n}.jinja").read_text() for n in FROM_TRL} | OWN
    text, rows = record(templates)
    recorded = {"templates": templates, "tokenizer": json.loads(text), "rows": rows}
    RECORDED.write_text(json.dumps(recorded, indent=0, ensure_ascii=False) + "\n")
