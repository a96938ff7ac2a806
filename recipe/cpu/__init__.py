"""The CPU profile: a verl platform, a vLLM plug-in and the tiny policy that fits it.

Both plug-ins are found through entry points in every process of a run, and both do nothing unless
`VERL_PLATFORM` is `cpu`. A Ray actor without a GPU on a GPU machine therefore never becomes a CPU platform.
"""
