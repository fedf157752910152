#!/bin/sh
# Runs the tests of the native library in the emulated Python that aarch64.sh made below $1; the rest goes to pytest.
#
# Three processors: one without dot products, one with them, one with everything. Each must choose its own best level, and
# the last one runs the tests on all three levels.
set -eu
to=$(cd "$1" && pwd)
shift
cd "$to/tree"
for pair in cortex-a72:scalar neoverse-n1:neon_dotprod max:neon_i8mm; do
  level=$(CPU=${pair%:*} "$to/python" -c 'from octavo.platforms.cpu import cpu_facts; print(cpu_facts().isa)')
  if [ "$level" != "${pair#*:}" ]; then
    echo "a ${pair%:*} chooses the level $level, not ${pair#*:}" >&2
    exit 1
  fi
done
# What runs native code; the other tests of tests/unit/ops are about Python. `scalar` is plain C++, which x86-64 tests too: the
# two files that take minutes per level leave it out. The `ci` profile of hypothesis has no deadlines.
run() { "$to/python" -m pytest --hypothesis-profile=ci "$@"; }
tests=tests/emulated
for name in prepare elementwise linear_act_mul head weights sampler sampler_logprobs plan_executor pool library; do
  tests="$tests tests/unit/ops/test_$name.py"
done
# shellcheck disable=SC2086
run $tests "$@"
run -k "not scalar" tests/unit/ops/test_linear.py tests/unit/ops/test_attention.py
