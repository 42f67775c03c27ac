"""Episodes as long as you like: a store whose answers are texts of a given size, for a given number of messages.

    tandem run configs/tiny.yaml run.steps=1 --run-dir T
    python3 examples/environments/long.py --model T/model long-model      # the tiny model with 131,072 positions
    tandem run configs/tiny.yaml model.path=long-model run.steps=1 tasks.heldout=0 tasks.kinds=[long] env.output_bytes=2000 \\
        "env.external=[long=python3 examples/environments/long.py 300 395]" rollout.max_tokens=120000 rollout.episode_seconds=3000 \\
        trainer.groups_per_step=1 trainer.group_size=2

An episode is over after 300 messages of the model, whatever they say; 395 bytes are shown after each. `4..200` in place of
300: most episodes are short and a few long (a Pareto distribution of tail index 1.1). The reward is drawn by chance, so there
is something to train on and nothing to learn: this measures how long episodes are sampled, moved and trained.
"""

import json
import os
import random
import shutil
import sys

POSITIONS = 131072
WRITE = {"type": "function", "function": {
    "name": "write", "description": "Store a text under a key.",
    "parameters": {"type": "object", "required": ["file_path", "contents"],
                   "properties": {"file_path": {"type": "string"}, "contents": {"type": "string"}}}}}


def lengthen(model, out):
    shutil.copytree(model, out)
    with open(os.path.join(out, "config.json")) as file:
        config = json.load(file)
    with open(os.path.join(out, "config.json"), "w") as file:
        json.dump({**config, "max_position_embeddings": POSITIONS}, file, indent=2)


class Episode:
    def __init__(self, seed, split):
        self.draw = random.Random(f"{split} {seed}")
        self.turns = self.calls = 0
        self.said = ""

    def text(self):
        return "".join(self.draw.choice("ABCDEFGHIJKLMNOP ") for _ in range(BYTES))

    def reset(self):
        self.last = min(MOST, int(LEAST * self.draw.paretovariate(1.1)))
        return {"instruction": "Files:\n\nwrite TARA to BEBO.", "tools": [WRITE], "max_turns": self.last}

    def step(self, message, calls):
        self.turns += 1
        self.said += message
        self.calls += len(calls)
        answer = {"done": self.turns == self.last, "reward": 0}
        if calls:
            return {**answer, "results": [self.text() for _ in calls]}
        return {**answer, "observation": self.text()}

    def state(self):
        return {"turns": self.turns}

    def score(self, answer):
        return {"reward": random.Random(self.said).random(), "terms": {"calls": self.calls}}


def answer(method, episode, **params):
    if method == "reset":
        episodes[episode] = Episode(**params)
        return episodes[episode].reset()
    if method == "close":
        return {"known": episodes.pop(episode, None) is not None}
    return getattr(episodes[episode], method)(**params)


if sys.argv[1:2] == ["--model"]:
    lengthen(*sys.argv[2:4])
    sys.exit()
LEAST, MOST = (int(word) for word in (sys.argv[1].split("..") * 2)[:2])
BYTES = int(sys.argv[2])
episodes = {}
for line in sys.stdin:
    question = json.loads(line)
    try:
        print(json.dumps({"id": question["id"], "result": answer(question["method"], **question["params"])}), flush=True)
    except Exception as error:
        print(json.dumps({"id": question["id"], "error": {"message": repr(error)}}), flush=True)
