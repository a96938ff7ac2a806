"""The CPU profile: a verl platform and a vLLM plug-in, which do nothing unless `VERL_PLATFORM` is `cpu`."""
