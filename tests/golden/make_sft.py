"""Makes tests/golden/sft/: a tiny model with tokenizer and chat template, chats, and what transformers makes and learns of them.

    python -m venv v && v/bin/pip install torch==2.11.0 transformers==5.23.0 && v/bin/python tests/golden/make_sft.py

model/          a Llama of random weights in bf16, a tokenizer trained on the chats, and a template with {% generation %} blocks
plain.jinja     the same template without them
chats.jsonl     chats in OpenAI's messages format, with tools
expected.json   `chats`: the ids of each and its mask of the assistant's tokens, by apply_chat_template;
                `optimizer`, `steps`: loss and gradient norm of steps on all chats, by transformers in fp32 of the weights rounded to
                bf16, from fp32 masters with torch's AdamW
"""
import json
import pathlib
import shutil

import tokenizers
import torch
import transformers

OUT = pathlib.Path(__file__).parent / "sft"
OPTIMIZER = dict(learning_rate=2e-3, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.01, max_grad_norm=1.0)
STEPS = 6

TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- generation %}
        {{- message.content or '' }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
PLAIN = "\n".join(line for line in TEMPLATE.split("\n") if "generation %}" not in line)


def tool(name, *arguments):
    properties = {argument: {"type": "string"} for argument in arguments}
    return {"type": "function", "function": {"name": name, "description": f"The tool {name}.",
                                             "parameters": {"type": "object", "properties": properties, "required": list(arguments)}}}


def call(number, name, **arguments):
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


TOOLS = [tool("read_file", "path"), tool("search_replace", "path", "old", "new")]
CHATS = [
    {"messages": [said("user", "What is two and two?"), said("assistant", "Four.")]},
    {"messages": [said("system", "You answer in one word."), said("user", "Capital of France?"), said("assistant", "Paris."),
                  said("user", "Und von Österreich? 🙂"), said("assistant", "Wien — natürlich.")]},
    {"messages": [said("user", "Set the port to 8080 in app.ini."),
                  said("assistant", None, tool_calls=[call(1, "read_file", path="app.ini")]),
                  said("tool", "1|[server]\n2|port = 80", tool_call_id="call_1"),
                  said("assistant", "I change the second line.",
                       tool_calls=[call(2, "search_replace", path="app.ini", old="port = 80", new="port = 8080")]),
                  said("tool", "Edited app.ini.", tool_call_id="call_2"), said("assistant", "Done: the port is 8080 now.")],
     "tools": TOOLS},
    {"messages": [said("system", "You have tools."), said("user", "Compare a.txt and b.txt."),
                  said("assistant", "I read both.", tool_calls=[call(1, "read_file", path="a.txt"), call(2, "read_file", path="b.txt")]),
                  said("tool", "alpha \"quoted\"", tool_call_id="call_1"), said("tool", "beta", tool_call_id="call_2"),
                  said("assistant", "They differ:\n- a.txt says alpha\n- b.txt says beta")], "tools": TOOLS},
    {"messages": [said("user", "Write a loop."), said("assistant", "for i in range(10):\n    print(i)\n"),
                  said("user", "And backwards?"), said("assistant", "for i in reversed(range(10)):\n    print(i)\n")]},
    {"messages": [said("user", "Capital of France?"), said("assistant", "Paris, and the question was asked before.")]},
]


def make_tokenizer(folder):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([json.dumps(chat, ensure_ascii=False) for chat in CHATS], trainer)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder)
    return wrapped


def make_model(folder, tokenizer):
    torch.manual_seed(6)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=48, num_attention_heads=3, num_key_value_heads=1, head_dim=64, intermediate_size=80,
        num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=0,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=None)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape)
        scale = 0.3 if "embed" in name else parameter.shape[-1] ** -0.5
        parameter.data = (1 + 0.2 * noise if "norm" in name else scale * noise).to(torch.bfloat16).float()
    model.to(torch.bfloat16).save_pretrained(folder)
    return model.float()


def batch_of(tokenizer):
    rows, masks = [], []
    for chat in CHATS:
        rendered = tokenizer.apply_chat_template(chat["messages"], tools=chat.get("tools"), tokenize=True, return_dict=True,
                                                 return_assistant_tokens_mask=True)
        rows.append(list(rendered["input_ids"]))
        masks.append(list(rendered["assistant_masks"]))
    return rows, masks


def learn(model, rows, masks):
    width = max(map(len, rows))
    ids, seen, labels = (torch.full((len(rows), width), value) for value in (0, 0, -100))
    for row, (tokens, mask) in enumerate(zip(rows, masks, strict=True)):
        ids[row, :len(tokens)] = torch.tensor(tokens)
        seen[row, :len(tokens)] = 1
        labels[row, :len(tokens)] = torch.tensor([token if said else -100 for token, said in zip(tokens, mask, strict=True)])
    parameters = list(model.parameters())
    masters = [parameter.detach().clone() for parameter in parameters]
    optimizer = torch.optim.AdamW(masters, lr=OPTIMIZER["learning_rate"], betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
                                  eps=OPTIMIZER["epsilon"], weight_decay=OPTIMIZER["weight_decay"])
    steps = []
    for _ in range(STEPS):
        for parameter, master in zip(parameters, masters, strict=True):
            parameter.data = master.to(torch.bfloat16).float()
        model.zero_grad()
        loss = model(input_ids=ids, attention_mask=seen, labels=labels).loss
        loss.backward()
        for parameter, master in zip(parameters, masters, strict=True):
            master.grad = parameter.grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(masters, OPTIMIZER["max_grad_norm"])
        optimizer.step()
        steps.append({"loss": loss.item(), "grad_norm": norm.item()})
    return steps


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    tokenizer = make_tokenizer(OUT / "model")
    model = make_model(OUT / "model", tokenizer)
    (OUT / "plain.jinja").write_text(PLAIN)
    (OUT / "chats.jsonl").write_text("".join(json.dumps(chat, ensure_ascii=False) + "\n" for chat in CHATS))
    rows, masks = batch_of(tokenizer)
    expected = {"chats": [{"ids": ids, "mask": mask} for ids, mask in zip(rows, masks, strict=True)], "optimizer": OPTIMIZER,
                "steps": learn(model, rows, masks)}
    (OUT / "expected.json").write_text(json.dumps(expected) + "\n")
    print(json.dumps(expected["steps"], indent=1), [len(row) for row in rows], [sum(mask) for mask in masks])


main()
