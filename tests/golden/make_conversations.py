"""Makes tests/golden/conversations/: conversations with tools, by the token, as transformers renders them.

    python -m venv v && v/bin/pip install transformers==5.23.0 jinja2==3.1.6 tokenizers
    v/bin/python tests/golden/make_conversations.py [--templates FOLDER --out FILE]

cases.jsonl  {"template", "source" (null: chat_templates/TEMPLATE.jinja), "marks", "ends", "tools", "messages", "prompt", "turns": [{"said", "text", "reasoning", "calls", "results"
             or "instruction", "whole", "redrawn"}]}: `prompt` are the opening tokens, `said` those of a turn with its end
             token, `whole` all tokens up to the opening of the next turn. Where `redrawn`, the template writes the turn in
             another way when more follows it, and `whole` is null.

The templates are those of tests/golden/chat_templates, and small ones of our own below, in the notation of families that
publish none there. With --templates the published ones of a folder (the wheel of trl has some in trl/chat_templates) are
taken instead, for a comparison that is not kept:

    TANDEM_CONVERSATIONS=FILE build/release/bin/test_rollout --gtest_filter='Conversations*'
"""
import argparse
import json
import pathlib

from tokenizers import Tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).parent
BASE = HERE / "tokenizers" / "qwen2" / "tokenizer.json"
TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "Reads a file.", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}, "required": ["path"]}}},
    {"type": "function", "function": {"name": "write", "description": "Writes a file.", "parameters": {
        "type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}, "required": ["path", "text"]}}}]
OPENING = [{"role": "system", "content": "Work with tools."}, {"role": "user", "content": "Was steht in größe.txt? 中"}]

# In the notation of a family, written for this test.
TURN = "{{ '<|%s|>' ~ m.content }}"
OWN = {
    "glm4": """[gMASK]<sop>{% if tools %}<|system|>
{% for tool in tools %}{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}Write <tool_call>name
<arg_key>key</arg_key>
<arg_value>value</arg_value>
</tool_call>{% endif %}{% for m in messages %}{% if m.role == 'tool' %}{% if messages[loop.index0 - 1].role != 'tool' %}<|observation|>{% endif %}{{ '\\n<tool_response>\\n' ~ m.content ~ '\\n</tool_response>' }}{% elif m.role == 'assistant' %}<|assistant|>{{ '\\n<think>' ~ (m.reasoning_content or '') ~ '</think>' }}{% if m.content %}{{ '\\n' ~ m.content }}{% endif %}{% for c in m.tool_calls or [] %}{{ '\\n<tool_call>' ~ c.function.name ~ '\\n' }}{% for k, v in c.function.arguments.items() %}{{ '<arg_key>' ~ k ~ '</arg_key>\\n<arg_value>' ~ (v if v is string else v | tojson) ~ '</arg_value>\\n' }}{% endfor %}</tool_call>{% endfor %}{% else %}{{ '<|' ~ m.role ~ '|>\\n' ~ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}""",
    "llama3": """{{ bos_token }}{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' ~ m.tool_calls[0].function.name ~ '", "parameters": ' ~ (m.tool_calls[0].function.arguments | tojson) ~ '}<|eot_id|>' }}{% elif m.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' ~ m.content ~ '<|eot_id|>' }}{% else %}{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' }}{% if m.role == 'user' and loop.index0 == 1 and tools %}{% for t in tools %}{{ t | tojson(indent=4) ~ '\\n\\n' }}{% endfor %}{% endif %}{{ m.content | trim ~ '<|eot_id|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "deepseek_v3": """{% set ns = namespace(answers=false) %}{{ bos_token }}{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}{% for t in tools or [] %}{{ '\\n' ~ (t | tojson) }}{% endfor %}{% for m in messages %}{% if m.role == 'user' %}{{ '<｜User｜>' ~ m.content }}{% elif m.role == 'assistant' %}{% if not ns.answers %}<｜Assistant｜>{% endif %}{% set ns.answers = false %}{{ m.content }}{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}{{ '\\n' if not loop.first }}{{ '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + c.function.name + '\\n```json\\n' + c.function.arguments + '\\n```<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>{% endif %}<｜end▁of▁sentence｜>{% elif m.role == 'tool' %}{% if not ns.answers %}<｜tool▁outputs▁begin｜>{% endif %}{% set ns.answers = true %}{{ '<｜tool▁output▁begin｜>' ~ m.content ~ '<｜tool▁output▁end｜>' }}{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<｜tool▁outputs▁end｜>{% endif %}{% endif %}{% endfor %}{% if add_generation_prompt and not ns.answers %}<｜Assistant｜>{% endif %}""",
    "deepseek_v31": """{% set ns = namespace(answers=false) %}{{ bos_token }}{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}{% for t in tools or [] %}{{ '\\n' ~ (t | tojson) }}{% endfor %}{% for m in messages %}{% if m.role == 'user' %}{{ '<｜User｜>' ~ m.content }}{% elif m.role == 'assistant' %}{% if not ns.answers %}<｜Assistant｜></think>{% endif %}{% set ns.answers = false %}{{ m.content or '' }}{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + c.function.arguments + '<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>{% endif %}<｜end▁of▁sentence｜>{% elif m.role == 'tool' %}{% set ns.answers = true %}{{ '<｜tool▁output▁begin｜>' ~ m.content ~ '<｜tool▁output▁end｜>' }}{% endif %}{% endfor %}{% if add_generation_prompt and not ns.answers %}<｜Assistant｜></think>{% endif %}""",
    "kimi_k2": """{% if tools %}{{ '<|im_system|>tool_declare<|im_middle|>' ~ (tools | tojson(separators=(',', ':'))) ~ '<|im_end|>' }}{% endif %}{% for m in messages %}{% if m.role == 'tool' %}{{ '<|im_system|>' ~ (m.name or 'tool') ~ '<|im_middle|>## Return of ' ~ m.tool_call_id ~ '\\n' ~ m.content }}{% elif m.role == 'assistant' %}{{ '<|im_assistant|>assistant<|im_middle|>' ~ (m.content or '') }}{% if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}{{ '<|tool_call_begin|>' ~ c.id ~ '<|tool_call_argument_begin|>' ~ (c.function.arguments if c.function.arguments is string else c.function.arguments | tojson) ~ '<|tool_call_end|>' }}{% endfor %}<|tool_calls_section_end|>{% endif %}{% else %}{{ '<|im_' ~ m.role ~ '|>' ~ m.role ~ '<|im_middle|>' ~ m.content }}{% endif %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}""",
}
# What each family ends a turn with, its other marks, and how it wants the arguments of a call.
CHATML = {"marks": ["<|im_end|>", "<|im_start|>"], "end": "<|im_end|>"}
DEEPSEEK = {"marks": ["<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"] + ["<｜tool▁%s｜>" % m for m in (
    "calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep", "outputs▁begin", "outputs▁end", "output▁begin", "output▁end")],
    "end": "<｜end▁of▁sentence｜>", "text_arguments": True}
FAMILIES = {
    "Qwen-Qwen2.5-7B-Instruct": CHATML, "Qwen-Qwen3-0.6B": CHATML | {"reasons": True}, "Qwen3-Coder": CHATML,
    "qwen2_5": CHATML, "qwen3": CHATML | {"reasons": True}, "qwen3_instruct_2507": CHATML, "qwen3_5_think": CHATML | {"reasons": True},
    "qwen3_6": CHATML | {"reasons": True},
    "glm4": {"marks": ["<|user|>", "<|observation|>", "<|assistant|>", "<|system|>", "[gMASK]", "<sop>"], "end": None, "ends": 2, "reasons": True},
    "llama3": {"marks": ["<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"], "end": "<|eot_id|>", "one": True},
    "deepseek_v3": DEEPSEEK, "deepseek_v31": DEEPSEEK,
    "kimi_k2": {"marks": ["<|im_end|>", "<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|tool_calls_section_begin|>",
                          "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"],
                "end": "<|im_end|>", "ids": True},
}
FAMILIES |= {"glm4moe": FAMILIES["glm4"], "llama3_1": FAMILIES["llama3"], "llama3_2": FAMILIES["llama3"],
             "deepseek-ai-DeepSeek-V3.1": DEEPSEEK}


def tokenizer_of(marks):
    data = json.loads(BASE.read_text())
    first = max(token["id"] for token in data["added_tokens"]) + 1
    for i, mark in enumerate(marks):
        data["added_tokens"].append({"id": first + i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
    return Tokenizer.from_str(json.dumps(data))


def conversation(name, source, family):
    tokenizer = tokenizer_of(family["marks"])
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    ends = [tokenizer.token_to_id(mark) for mark in family["marks"][:family.get("ends", 1)]]

    def render(messages, **settings):
        return render_jinja_template([messages], tools=TOOLS, chat_template=source, bos_token="", eos_token=family["end"] or "", **settings)[0][0]

    calls = [[("read_file", {"path": "größe.txt", "lines": 3}), ("read_file", {"path": "b \"x\".txt"})],
             [("write", {"path": "c.txt", "text": "eins\n  zwei\tdrei\n"})]]
    if family.get("one"):
        calls[0] = calls[0][:1]
    results = [["Größe 42\n中 <tool>", "Error: there is no b \"x\".txt"][:len(calls[0])], ["Wrote c.txt."]]
    number = 0
    messages, turns = list(OPENING), []
    case = {"template": name, "marks": family["marks"], "ends": ends, "tools": TOOLS, "messages": OPENING,
            "source": None if (HERE / "chat_templates" / f"{name}.jinja").exists() else source, "prompt": encode(render(messages, add_generation_prompt=True))}
    for turn in range(3):
        message = {"role": "assistant", "content": "42."}
        asked = []
        if turn < 2:
            message["content"] = ""
            for tool, arguments in calls[turn]:
                asked.append(f"functions.{tool}:{number}" if family.get("ids") else f"call_{len(asked) + 1}")
                number += 1
                message.setdefault("tool_calls", []).append({"id": asked[-1], "type": "function", "function": {
                    "name": tool, "arguments": json.dumps(arguments, ensure_ascii=False) if family.get("text_arguments") else arguments}})
        reasoning = f"Ich denke {turn}." if family.get("reasons") else ""
        if reasoning:
            message["reasoning_content"] = reasoning
        following = [{"role": "tool", "tool_call_id": id, "name": call[0], "content": text}
                     for id, call, text in zip(asked, calls[turn] if turn < 2 else [], results[turn] if turn < 2 else [])]
        following = following or [{"role": "user", "content": "Und jetzt?"}]
        opened = render(messages, add_generation_prompt=True)
        alone = render(messages + [message])
        whole = render(messages + [message] + following, add_generation_prompt=True)
        assert alone.startswith(opened), (name, turn, opened[-80:], alone[len(opened) - 80:][:200])
        said = alone[len(opened):]
        if family["end"]:
            said = said[:said.rindex(family["end"])]
            end = tokenizer.token_to_id(family["end"])
        else:
            end = ends[1] if asked else ends[0]
        redrawn = not whole.startswith(opened + said + (family["end"] or ""))
        turns.append({"said": encode(said) + [end], "text": message["content"], "reasoning": reasoning,
                      "calls": [{"name": t, "arguments": a} for t, a in calls[turn]] if turn < 2 else [],
                      "results": [m["content"] for m in following] if turn < 2 else [], "instruction": "" if turn < 2 else "Und jetzt?",
                      "whole": None if redrawn else encode(whole), "redrawn": redrawn})
        messages += [message] + following
    return case | {"turns": turns}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--templates", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "conversations" / "cases.jsonl")
    options = parser.parse_args()
    sources = OWN | {p.stem: p.read_text() for p in (HERE / "chat_templates").glob("*.jinja")}
    if options.templates:
        sources = {p.stem: p.read_text() for p in options.templates.glob("*.jinja") if p.stem in FAMILIES}
    with open(options.out, "w") as out:
        for name, source in sorted(sources.items()):
            out.write(json.dumps(conversation(name, source, FAMILIES[name]), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
