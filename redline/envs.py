"""Import this to have Gymnasium know our envs: `gymnasium.make("redline.envs:redline/…")` does so by itself."""

from redline.worlds.registry import register_envs

register_envs()
