"""``tpu-migrate doctor``: what this machine has, what is installed, and what is in the way.

``machine`` looks at the hardware, ``environment_variables`` at the environment, ``diagnosis`` puts
them together with what ``verify`` knows of interpreters, ``show_diagnosis`` prints it.
"""
