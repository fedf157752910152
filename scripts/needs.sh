#!/bin/sh
# Checks what Octavo needs from the system: one line per missing item, with the command that installs it.
missing=0
say() { # what, apt packages, dnf packages
  echo "missing: $1   (Debian/Ubuntu: apt-get install $2   Fedora/RHEL: dnf install $3)" >&2
  missing=1
}
if [ "$(uname -s)" != Linux ]; then
  echo "Octavo runs on Linux; on macOS or Windows use a Linux virtual machine, container or WSL." >&2
  exit 1
fi
command -v git > /dev/null || say git git git
if ! command -v uv > /dev/null && ! sh "$(dirname "$0")/find-python.sh" > /dev/null; then
  say "Python 3.11 to 3.14 with venv" "python3 python3-venv" python3
fi
compiler_ok() { # compiler, lowest major version
  command -v "$1" > /dev/null || return 1
  [ "$(echo __GNUC__ __clang_major__ | "$1" -E -x c++ - 2> /dev/null | tail -n 1 |
    awk -v clang="$3" '{print clang ? $2 : $1}' | tr -dc 0-9)" -ge "$2" ] 2> /dev/null || return 1
  echo '#include <atomic>' | "$1" -E -x c++ - > /dev/null 2>&1
}
compiler_ok "${CXX:-g++}" 11 || compiler_ok g++ 11 || compiler_ok clang++ 15 1 ||
  say "a C++ compiler: g++ 11 or newer, or clang 15 or newer" g++ gcc-c++
exit $missing
