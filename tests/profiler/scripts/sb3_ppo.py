"""Stable-Baselines3's PPO on CartPole. Prints the env steps taken and a checksum of the weights."""

import torch
from stable_baselines3 import PPO

model = PPO("MlpPolicy", "CartPole-v1", n_steps=512, batch_size=128, n_epochs=2, seed=1, device="cpu")
model.learn(2048)
with torch.no_grad():
    checksum = sum(weights.double().sum().item() for weights in model.policy.parameters())
print(model.num_timesteps, repr(checksum))
