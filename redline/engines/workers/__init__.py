"""Envs of one process, and the processes that hold them.

`stepping` says what a process can do with its envs, `single_envs` and `batched_envs` do it, `validation` checks what
envs answer, and `step_buffers` holds the arrays. `parent` and `child` are the two ends of a pipe between an engine and
a worker, `fork_server` is where workers come from, and `status` what is known of one that has died.
"""
