"""Routes of `VLLM_SERVER_DEV_MODE=1` (`OCTAVO_SERVER_DEV_MODE=1`): for those who develop."""
