"""Teams of defenders inside the original CAGE-4 and in Redline's: the same seeds must lead to the same scores.

git clone https://github.com/cage-challenge/cage-challenge-4 && git -C cage-challenge-4 checkout 8c3c50c
python -m venv original && original/bin/pip install -e cage-challenge-4
python cage4_in_cyborg.py original/bin/python respond --episodes 15      # or sleep, or the folder of a run

The original runs in a Python of its own, with none of our packages: a process that is told actions and answers with
observations. What a team remembers is worked out here from these, in both simulators alike.
"""

import argparse
import json
import subprocess
import sys

AGENTS = tuple(f"blue_agent_{b}" for b in range(5))
NUMBERS, ACTIONS, STEPS = 210, 242, 500


def serve():
    """Inside the original's Python: play what standard input tells, and answer on standard output."""
    from CybORG import CybORG
    from CybORG.Agents import EnterpriseGreenAgent, FiniteStateRedAgent, SleepAgent
    from CybORG.Agents.Wrappers import BlueFlatWrapper
    from CybORG.Simulator.Scenarios import EnterpriseScenarioGenerator

    def numbers(obs):
        return [[int(number) for number in obs[agent]] for agent in AGENTS]

    env = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "seed" in asked:
            scenario = EnterpriseScenarioGenerator(
                blue_agent_class=SleepAgent, green_agent_class=EnterpriseGreenAgent, red_agent_class=FiniteStateRedAgent,
                steps=asked["steps"],
            )  # fmt: skip
            env = BlueFlatWrapper(CybORG(scenario, seed=asked["seed"]), pad_spaces=True)
            obs, _ = env.reset()
            answer = [numbers(obs), [[int(allowed) for allowed in env.action_mask(agent)] for agent in AGENTS]]
        else:
            obs, rewards, ended, _, _ = env.step(dict(zip(AGENTS, asked["actions"], strict=True)))
            answer = [numbers(obs), float(rewards[AGENTS[0]]), all(ended.values())]
        print(json.dumps(answer), flush=True)


class Original:
    """CybORG, in a process of its own."""

    def __init__(self, python):
        self.process = subprocess.Popen(
            [python, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("The original has stopped: is CybORG of CAGE-4 installed in its Python?")
        return json.loads(line)

    def reset(self, seed, steps):
        numbers, masks = self.ask(seed=seed, steps=steps)
        return np.array(numbers, np.int8), np.array(masks, np.bool_)

    def step(self, actions):
        numbers, reward, ended = self.ask(actions=actions.tolist())
        return np.array(numbers, np.int8), reward, ended


class Ours:
    """The compiled rules."""

    def reset(self, seed, steps):
        self.env = Cage4VectorEnv(1, steps=steps, autoreset=False)
        self.env.reset(seed=seed)
        obs, infos = self.env.reset()  # an original that is made with a seed has drawn a network before
        return obs[0], infos["action_mask"][0]

    def step(self, actions):
        obs, rewards, _, truncated, _ = self.env.step(actions[None])
        return obs[0], float(rewards[0]), bool(truncated[0])


def player(name, seed, steps):
    """A function from a memory to useful actions."""
    if name in ("sleep", "respond"):
        team = {"sleep": lambda rows, masks, acting: np.zeros((1, 5), np.int64), "respond": respond}[name]
        return lambda memory: team(memory.rows, memory.masks, memory.acting)
    from redline.learn.evaluate import load_policy
    from redline.learn.team_policy import TeamActor

    actor = TeamActor(load_policy(Path(name)).policy, 1, seed, dedup=False)
    actor.begin(steps)
    return lambda memory: actor.act(memory.rows, memory.masks, memory.acting, np.zeros(5, np.int64))[0]


def score(simulator, name, seed, steps):
    """The official score: all rewards but the last."""
    memory, act = EnterpriseMemory(), player(name, seed, steps)
    memory.reset(*simulator.reset(seed, steps))
    rewards, ended = [], False
    while not ended:
        actions = memory.full_actions(act(memory))
        numbers, reward, ended = simulator.step(actions)
        memory.see(numbers, actions)
        rewards.append(reward)
    return sum(rewards[:-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="the Python in which the original is installed")
    parser.add_argument("team", help="sleep, respond, or the folder of a run")
    parser.add_argument("--episodes", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0, help="of the first episode")
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    original, found = Original(given.python), []
    for seed in range(given.seed, given.seed + given.episodes):
        found.append([score(each, given.team, seed, given.steps) for each in (original, Ours())])
        print(f"seed {seed}: original {found[-1][0]:g}, ours {found[-1][1]:g}", flush=True)
    scores = np.array(found)
    error = scores[:, 0].std() / max(1, len(scores) - 1) ** 0.5
    equal = int((scores[:, 0] == scores[:, 1]).sum())
    print(f"{given.team}: {scores[:, 0].mean():.1f} ± {error:.1f}; {equal} of {len(scores)} episodes are equal")
    return 0 if equal == len(scores) else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        from pathlib import Path

        import numpy as np

        from redline.worlds.cage4.baselines import respond
        from redline.worlds.cage4.env import Cage4VectorEnv
        from redline.worlds.cage4.remembering import EnterpriseMemory

        sys.exit(main())
