"""An environment that the openenv package serves (pip install openenv): guess a number from 1 to 8.

    python3 examples/environments/openenv_server.py 8000
    python3 examples/environments/openenv_server.py --demonstrations 300

openenv_bridge.py plays it, and any other environment of OpenEnv, in a run. The second prints games of a player who
guesses at random, for `tandem sft`: a model that knows the form of an answer, and has the rest to learn.
"""

import json
import random
import sys
from uuid import uuid4

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    message: str


class Hint(Observation):
    text: str


class GuessANumber(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state, self._number = State(episode_id=str(uuid4()), step_count=0), 1

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._number = random.Random(seed).randint(1, 8)
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return Hint(text="Guess a number from 1 to 8. Say the number alone.", done=False, reward=0.0)

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        guess = action.message.strip().rstrip(".")
        if guess == str(self._number):
            return Hint(text="Right.", done=True, reward=1.0)
        hint = "Say a number." if not guess.isdigit() else "More." if int(guess) < self._number else "Less."
        return Hint(text=hint, done=self._state.step_count >= 4, reward=0.0)

    @property
    def state(self):
        return self._state


def demonstration(seed):
    game, player = GuessANumber(), random.Random(-1 - seed)
    messages, observation = [], game.reset(seed=seed)
    while not observation.done:
        messages.append({"role": "user", "content": observation.text})
        guess = str(player.randint(1, 8))
        messages.append({"role": "assistant", "content": guess})
        observation = game.step(Guess(message=guess))
    return {"messages": messages}


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--demonstrations":
        for seed in range(int(sys.argv[2])):
            print(json.dumps(demonstration(seed)))
        sys.exit()
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    uvicorn.run(create_app(GuessANumber, Guess, Hint, max_concurrent_envs=512), host="127.0.0.1", port=port, log_level="error")
