"""Steps envs on threads that are still running when the main thread is done."""

import threading

import gymnasium as gym


class Countdown(gym.Env):
    def __init__(self):
        self.left = 10

    def reset(self, *, seed=None, options=None):
        self.left = 10
        return self.left, {}

    def step(self, action):
        self.left -= 1
        return self.left, 0.0, self.left == 0, False, {}


def play(wait_for):
    wait_for.wait()
    env = Countdown()
    env.reset()
    for _ in range(10):
        env.step(0)


main_is_done = threading.Event()
for _ in range(3):
    threading.Thread(target=play, args=(main_is_done,)).start()
Countdown().step(0)
main_is_done.set()
