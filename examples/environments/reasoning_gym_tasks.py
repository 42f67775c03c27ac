"""Tasks of reasoning-gym with its verifiers, over standard input and output (pip install reasoning-gym).

    tandem run configs/tiny.yaml "tasks.kinds=[sums]" \
        "env.external=[sums=python3 examples/environments/reasoning_gym_tasks.py chain_sum min_terms=2 max_terms=2]"

The first argument names one of its data sets, the others set its configuration; --demonstrations N as the last prints N
transcripts of right answers, for `tandem sft`. A task is a seed of the data set; the
answer is what stands between <answer> and </answer> in the last message, or all of it.
"""

import json
import re
import sys

import reasoning_gym

HELD_OUT = 1 << 40  # seeds from here on are those of held-out tasks


class Task:
    def __init__(self, name, settings):
        self.name, self.settings = name, settings

    def reset(self, seed, split):
        seed = seed % HELD_OUT + (0 if split == "train" else HELD_OUT)
        self.data = reasoning_gym.create_dataset(self.name, size=1, seed=seed, **self.settings)
        self.entry = self.data[0]
        ask = "\nGive the answer alone, between <answer> and </answer>."
        self.instruction = self.entry["question"] + ask
        return {"instruction": self.instruction, "max_turns": 1}

    def step(self, message, calls):
        return {"results": ["there are no tools here"] * len(calls), "done": True}

    def state(self):
        return {"data_set": self.name, "metadata": repr(self.entry["metadata"])}

    def score(self, answer):
        found = re.findall(r"<answer>(.*?)</answer>", answer, re.DOTALL)
        said = (found[-1] if found else answer).strip()
        reward = float(self.data.score_answer(said, self.entry))
        return {"reward": reward, "terms": {"exact": float(said == self.entry["answer"]), "tagged": float(bool(found))}}


    def demonstration(self):
        answer = f"<answer>{self.entry['answer']}</answer>"
        return {"messages": [{"role": "user", "content": self.instruction}, {"role": "assistant", "content": answer}]}


def value_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


demonstrations = int(sys.argv.pop()) if sys.argv[-2] == "--demonstrations" else 0
settings = dict(argument.split("=", 1) for argument in sys.argv[2:] if argument != "--demonstrations")
settings = {key: value_of(text) for key, text in settings.items()}


def answer(method, episode, **params):
    if method == "reset":
        episodes[episode] = Task(sys.argv[1], settings)
    if method == "close":
        return {"known": episodes.pop(episode, None) is not None}
    return getattr(episodes[episode], method)(**params)


for seed in range(demonstrations):
    task = Task(sys.argv[1], settings)
    task.reset(seed, "train")
    print(json.dumps(task.demonstration()))
if demonstrations:
    sys.exit()

episodes = {}
for line in sys.stdin:
    question = json.loads(line)
    try:
        result = answer(question["method"], **question["params"])
        print(json.dumps({"id": question["id"], "result": result}), flush=True)
    except Exception as error:
        print(json.dumps({"id": question["id"], "error": {"message": repr(error)}}), flush=True)
