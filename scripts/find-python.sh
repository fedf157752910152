#!/bin/sh
# Prints the newest Python from 3.11 to 3.14 that can make a virtual environment.
for version in 3.14 3.13 3.12 3.11 3; do
  python=$(command -v "python$version") || continue
  "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' \
    > /dev/null 2>&1 && echo "$python" && exit 0
done
exit 1
