# The CPU profile: what `bash run_all.sh` needs on a machine without GPU, from requirements/cpu.txt by setup.sh.
# Not built where it was written (no container engine there).
FROM python:3.11-bookworm

WORKDIR /recipe
ENV HARDWARE=cpu PIP_NO_CACHE_DIR=1
# The index with the CPU build of torch; empty for the ordinary one, whose build may be CUDA's, of several GB.
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu

# First what changes seldom: the packages stay in a layer of their own when the code changes.
COPY setup.sh pyproject.toml README.md LICENSE NOTICE ./
COPY requirements requirements
COPY recipe/scripts.sh recipe/
RUN TORCH_INDEX_URL="$TORCH_INDEX_URL" bash setup.sh

COPY . .
CMD ["bash", "run_all.sh"]
