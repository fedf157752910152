"""Prints the requirements of the named extras in pyproject.toml (none named: those of the package).

`build` names the requirements of the build itself.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
names = sys.argv[1:] or [""]
for name in names:
    if name == "":
        wanted = project["project"]["dependencies"]
    elif name == "build":
        wanted = project["build-system"]["requires"]
    else:
        wanted = project["project"]["optional-dependencies"][name]
    print(*(w.replace(" ", "") for w in wanted), sep="\n")
