"""Any environment of OpenEnv, by its own client over a WebSocket session, in a run (pip install openenv).

    env.external="[guess=python3 examples/environments/openenv_bridge.py http://127.0.0.1:8000]" tasks.kinds="[guess]"

What the model says is the field `message` of the action, and the field `text` of an observation is what it reads;
--action NAME and --observation NAME choose others. The reward is the sum of what the steps gave.
"""

import argparse
import json
import sys

from openenv.core import GenericEnvClient

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("--action", default="message")
parser.add_argument("--observation", default="text")
parser.add_argument("--turns", type=int, default=8)
options = parser.parse_args()


def text_of(observation):
    found = observation.get(options.observation)
    return found if isinstance(found, str) and found else json.dumps(observation)


class Session:
    def __init__(self):
        self.client = GenericEnvClient(base_url=options.url).sync()
        self.client.connect()

    def reset(self, seed, split):
        result = self.client.reset(seed=seed)
        return {"instruction": text_of(result.observation), "max_turns": options.turns, "score": "sum"}

    def step(self, message, calls):
        result = self.client.step({options.action: message})
        answer = {"observation": text_of(result.observation), "done": bool(result.done)}
        if calls:
            answer["results"] = [answer["observation"]] * len(calls)
        if result.reward is not None:
            answer["reward"] = float(result.reward)
        return answer

    def state(self):
        return self.client.state()

    def close(self):
        self.client.close()
        return {}


def answer(method, episode, **params):
    if method == "reset":
        episodes[episode] = Session()
    session = episodes[episode]
    if method == "close":
        del episodes[episode]
    return getattr(session, method)(**params)


episodes = {}
for line in sys.stdin:
    question = json.loads(line)
    try:
        result = answer(question["method"], **question["params"])
        print(json.dumps({"id": question["id"], "result": result}), flush=True)
    except Exception as error:
        print(json.dumps({"id": question["id"], "error": {"message": repr(error)}}), flush=True)
