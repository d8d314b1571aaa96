"""The champion inside the original simulator: CybORG's own loop, its official evaluation, numpy alone.

git clone https://github.com/cage-challenge/cage-challenge-2 && pip install -e cage-challenge-2/CybORG
python champion_in_cyborg.py final 100           # the last commit of CybORG plays `final`
python champion_in_cyborg.py leaderboard 100     # 606813b plays `leaderboard`
"""

import inspect
import random
import statistics
import sys
from pathlib import Path

import numpy as np
from CybORG import CybORG
from CybORG.Agents import B_lineAgent, RedMeanderAgent, SleepAgent
from CybORG.Agents.Wrappers import ChallengeWrapper
from safetensors.numpy import load_file

import redline
from redline.worlds.cage2.memory import Memory

CHAMPIONS = Path(redline.__file__).parent / "worlds" / "cage2" / "champions"
SCENARIO = Path(inspect.getfile(CybORG)).parent / "Shared" / "Scenarios" / "Scenario2.yaml"


def likeliest(weights, numbers):
    """The policy: two hidden layers, and the action with the largest output."""
    hidden = np.tanh(weights["policy.trunk.0.weight"] @ numbers + weights["policy.trunk.0.bias"])
    hidden = np.tanh(weights["policy.trunk.2.weight"] @ hidden + weights["policy.trunk.2.bias"])
    return int(np.argmax(weights["policy.actor.weight"] @ hidden + weights["policy.actor.bias"]))


def episode(env, memory, weights, num_steps):
    """The sum of rewards; nothing but the table and Blue's own actions is told to the memory."""
    env.reset()
    memory.reset()
    total = 0.0
    for _ in range(num_steps):
        action = memory.full_action(likeliest(weights, memory.numbers))
        table, reward, _, _ = env.step(action)
        memory.see(table, action)
        total += reward
    return total


if __name__ == "__main__":
    rules, episodes = sys.argv[1], int(sys.argv[2])
    random.seed(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    weights, memory = load_file(CHAMPIONS / rules / "arrays.safetensors"), Memory(rules)
    for num_steps in (30, 50, 100):
        for red_agent in (B_lineAgent, RedMeanderAgent, SleepAgent):
            env = ChallengeWrapper(env=CybORG(str(SCENARIO), "sim", agents={"Red": red_agent}), agent_name="Blue")
            returns = [episode(env, memory, weights, num_steps) for _ in range(episodes)]
            stderr = statistics.stdev(returns) / episodes**0.5
            print(f"{red_agent.__name__:<16}{num_steps:>4}{statistics.mean(returns):>8.2f} ± {stderr:.2f}", flush=True)
