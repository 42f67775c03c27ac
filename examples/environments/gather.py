"""An environment with many files: five to read, in as many messages as the model likes.

    python3 examples/environments/gather.py --demonstrations 600 > gather.jsonl
    tandem run configs/tiny.yaml run.steps=1 --run-dir T
    tandem sft configs/sft.yaml model=T/model out=W data.train=[gather.jsonl] data.validation_share=0 \\
        data.tool_calls=text validation.patience=0 trainer.learning_rate=2e-3 trainer.epochs=4 trainer.tokens_per_step=4096
    tandem run configs/tiny.yaml model.path=W run.steps=40 tasks.kinds=[gather] reward.effort=0.2 reward.effort_turn=1 \\
        "env.external=[gather=python3 examples/environments/gather.py]"

The demonstrations read some files in one message and some one by one, so the warm start knows both and prefers neither.
With `reward.effort_turn` messages cost, and the policy learns to read in parallel; without it nothing tells them apart.
"""

import json
import random
import sys

FILES, TURNS = "ABCDE", 8
READ = {"type": "function", "function": {
    "name": "read_file", "description": "Read a file.",
    "parameters": {"type": "object", "required": ["target_file"], "properties": {"target_file": {"type": "string"}}}}}


# As a run writes the tools where the model's chat template does not.
SYSTEM = f"""You can call these tools:
read_file: Read a file. {json.dumps(READ["function"]["parameters"], separators=(",", ":"))}
Call a tool like this:
<tool_call>{{"name": "read_file", "arguments": {{...}}}}</tool_call>"""


INSTRUCTION = f"Files:\n{' '.join(FILES)}\n\nread all."


class Episode:
    def __init__(self, seed, split):
        draw = random.Random(f"{split} {seed}")  # the same task for the same seed
        self.content = {name: str(draw.randrange(10)) for name in FILES}
        self.read, self.turns = set(), 0

    def reset(self):
        return {"instruction": INSTRUCTION, "tools": [READ], "max_turns": TURNS}

    def results(self, names):
        self.read |= set(names) & set(FILES)
        return [self.content.get(name, "There is no such file.") for name in names]

    def step(self, message, calls):
        self.turns += 1
        results = self.results([str(call["arguments"].get("target_file")) for call in calls])
        return {"results": results, "done": not calls or len(self.read) == len(FILES) or self.turns == TURNS, "reward": 0}

    def state(self):
        return {"read": sorted(self.read)}

    def score(self, answer):
        return {"reward": len(self.read) / len(FILES), "terms": {"messages": self.turns}}


def demonstration(seed):
    episode, draw = Episode(seed, "demonstrations"), random.Random(seed)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": INSTRUCTION}]
    left = list(FILES)
    while left:
        names, left = left[:(count := draw.choice([1, 1, 2, 3]))], left[count:]
        calls = [{"id": f"call_{len(messages)}_{i}", "type": "function",
                  "function": {"name": "read_file", "arguments": json.dumps({"target_file": name})}}
                 for i, name in enumerate(names)]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": text}
                     for call, text in zip(calls, episode.results(names))]
    # The episode ends with its last call, so the answers to that are not a part of it.
    while messages[-1]["role"] == "tool":
        messages.pop()
    return {"messages": messages}


def answer(method, episode, **params):
    if method == "reset":
        episodes[episode] = Episode(**params)
        return episodes[episode].reset()
    if method == "close":
        return {"known": episodes.pop(episode, None) is not None}
    return getattr(episodes[episode], method)(**params)


if sys.argv[1:2] == ["--demonstrations"]:
    for seed in range(int(sys.argv[2])):
        print(json.dumps(demonstration(seed)))
    sys.exit()

episodes = {}
for line in sys.stdin:
    question = json.loads(line)
    try:
        result = answer(question["method"], **question["params"])
        print(json.dumps({"id": question["id"], "result": result}), flush=True)
    except Exception as error:
        print(json.dumps({"id": question["id"], "error": {"message": repr(error)}}), flush=True)
