"""Train on a Gymnasium env from Python, look at the policy, and score it. A notebook as a script: `# %%` begins a cell.

Run it with `python examples/train_and_play.py`.
"""

# %% What to train for
import argparse

parser = argparse.ArgumentParser(description="Train on CartPole, play and score.")
parser.add_argument("--total-steps", type=float, default=100_000, help="env steps to train for")
arguments = parser.parse_args()

# %% Train: a loop over updates, and whatever you like in its body
import redline  # noqa: E402

training = redline.train("CartPole-v1", total_steps=arguments.total_steps, seed=1)
learned = []
for update in training:
    learned.append(update.metrics["return"])
    if update.metrics["return"] > 495:
        break
print(f"{training.step:,} steps in {len(learned)} updates; the last episodes returned {learned[-1]:.0f}")

# %% Play one episode with the likeliest actions
import gymnasium as gym  # noqa: E402

agent, env = training.agent, gym.make("CartPole-v1")
obs, _ = env.reset(seed=7)
steps, over = 0, False
while not over:
    obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
    steps, over = steps + 1, terminated or truncated
print(f"One episode: {steps} steps; the last state is worth {agent.value(obs):.1f}")

# %% Score it
scores = redline.evaluate(agent, episodes=100)
print(f"Mean return of {scores['episodes']} episodes: {scores['mean']:.1f} ± {scores['stderr']:.1f}")
