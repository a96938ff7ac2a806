#!/usr/bin/env bash
# The documentation site on http://127.0.0.1:8000. Arguments go to mkdocs: bash run_docs.sh build --strict -d FOLDER
# The packages for it, requirements/docs.txt, are added to .venv first.
source "$(dirname "${BASH_SOURCE[0]}")/recipe/scripts.sh" || exit 1
.venv/bin/python -m pip install --quiet --no-deps -r requirements/docs.txt || exit 1
exec .venv/bin/python -m mkdocs "${@:-serve}"
