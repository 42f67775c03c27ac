"""An environment whose episodes outgrow a small context: five errands, each named in the answer to the one before.

    tandem run configs/tiny.yaml run.steps=60 --run-dir T
    tandem run configs/tiny.yaml model.path=T@last run.steps=80 rollout.max_tokens=264 tasks.kinds=[errands] \\
        "env.external=[errands=python3 examples/environments/errands.py]" env.profile=examples/environments/errands.yaml

What has been done is kept here, and a wrong call is answered with the errand once more. Of the conversation the model
needs the last errand alone: it goes on where its summary says that.
"""

import json
import random
import sys

WRITE = {"type": "function", "function": {
    "name": "write", "description": "Store a text under a key.",
    "parameters": {"type": "object", "required": ["file_path", "contents"], "properties": {
        "file_path": {"type": "string"}, "contents": {"type": "string"}}}}}
ERRANDS, TURNS = 5, 16


def word(draw, consonants):
    return "".join(draw.choice(letters) for letters in (consonants, "AEI", consonants, "OU"))


class Episode:
    def __init__(self, seed, split):
        draw = random.Random(f"{split} {seed}")
        self.errands = [(word(draw, "BDFGKL"), word(draw, "MNPRST")) for _ in range(ERRANDS)]
        self.done = self.turns = 0

    def errand(self):
        if self.done == ERRANDS:
            return "That is all."
        key, text = self.errands[self.done]
        return f"write {text} to {key}."

    def reset(self):
        return {"instruction": f"Files:\n\n{self.errand()}", "tools": [WRITE], "max_turns": TURNS}

    def step(self, message, calls):
        results = []
        for call in calls:
            written = (call["arguments"].get("file_path"), str(call["arguments"].get("contents")).strip())
            right = self.done < ERRANDS and call["name"] == "write" and written == self.errands[self.done]
            self.done += right
            results.append(f"{'stored' if right else 'no'}\n\n{self.errand()}")
        self.turns += 1
        return {"results": results, "done": not calls or self.done == ERRANDS or self.turns == TURNS, "reward": 0}

    def state(self):
        return {"done": self.done}

    def score(self, answer):
        return {"reward": self.done / ERRANDS, "terms": {"errands": self.done}}


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
