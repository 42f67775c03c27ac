"""An environment in one file, over standard input and output: the model writes a word under a key.

    tandem run configs/tiny.yaml "env.external=[store=python3 examples/environments/store.py]" "tasks.kinds=[echo, store]"

Each line that comes in is {"id", "method", "params"}; each line that goes out is {"id", "result"}, or {"id", "error"}.
The methods are reset, step, state, score and close. Several episodes are played at once: each question names its own.
"""

import json
import random
import sys

WRITE = {"type": "function", "function": {
    "name": "write", "description": "Store a text under a key.",
    "parameters": {"type": "object", "required": ["file_path", "contents"], "properties": {
        "file_path": {"type": "string"}, "contents": {"type": "string"}}}}}


def word(draw, consonants):
    return "".join(draw.choice(letters) for letters in (consonants, "AEI", consonants, "OU"))


class Episode:
    def __init__(self, seed, split):
        draw = random.Random(f"{split} {seed}")  # the same task for the same seed, whatever was played before
        self.key, self.text = word(draw, "BDFGKL"), word(draw, "MNPRST")
        self.content = {}

    def reset(self):
        return {"instruction": f"Files:\n\nwrite {self.text} to {self.key}.", "tools": [WRITE], "max_turns": 2}

    def step(self, message, calls):
        results = []
        for call in calls:
            arguments = call["arguments"]
            if call["name"] == "write" and {"file_path", "contents"} <= arguments.keys():
                self.content[arguments["file_path"]] = arguments["contents"]
                results.append("stored")
            else:
                results.append(f"there is no tool {call['name']} with these arguments")
        return {"results": results, "done": True, "reward": 0.1 * ("stored" in results)}

    def state(self):
        return {"content": self.content}

    def score(self, answer):
        right = self.content.get(self.key, "").strip() == self.text
        return {"reward": float(right), "terms": {"keys": len(self.content)}}


def answer(method, episode, **params):
    if method == "reset":
        episodes[episode] = Episode(**params)
        return episodes[episode].reset()
    if method == "close":
        return {"known": episodes.pop(episode, None) is not None}
    return getattr(episodes[episode], method)(**params)


episodes = {}
for line in sys.stdin:
    question = json.loads(line)
    try:
        result = answer(question["method"], **question["params"])
        print(json.dumps({"id": question["id"], "result": result}), flush=True)
    except Exception as error:
        print(json.dumps({"id": question["id"], "error": {"message": repr(error)}}), flush=True)
