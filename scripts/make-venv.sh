#!/bin/sh
# Makes the virtual environment $1 with the newest suitable Python; uv, if present, may bring one.
set -e
if [ -x "$1/bin/python" ] && "$1/bin/python" -c 'import pip' 2> /dev/null; then exit 0; fi
echo "Creating $1"
if python=$(sh "$(dirname "$0")/find-python.sh"); then
  "$python" -m venv "$1"
else
  uv venv --seed --python '>=3.11,<3.15' "$1"
fi
