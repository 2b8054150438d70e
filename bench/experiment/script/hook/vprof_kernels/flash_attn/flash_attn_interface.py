from flash_attn import *  # noqa: F403
