# The GPU profiles (gpu1, gpu8, gpu8_24gb), from requirements/gpu.txt by setup.sh. CUDA comes with the packages; the driver,
# 580 or newer, with the NVIDIA Container Toolkit. The base is not the slim one: Triton compiles with gcc and Python.h.
# Not built where it was written (no container engine there).
FROM python:3.11-bookworm

WORKDIR /recipe
ENV HARDWARE=gpu8 PIP_NO_CACHE_DIR=1

# First what changes seldom: the packages stay in a layer of their own when the code changes.
COPY setup.sh pyproject.toml README.md LICENSE NOTICE ./
COPY requirements requirements
COPY recipe/scripts.sh recipe/
RUN bash setup.sh

COPY . .
CMD ["bash", "run_all.sh"]
