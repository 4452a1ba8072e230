# llama-server of one exact llama.cpp commit. `invoke build-llama` passes the arguments and checks what came out; by
# hand (BuildKit needed):
#
#   docker build --build-arg BACKEND=cpu --build-arg BASE_BUILD=debian:bookworm-slim \
#     --build-arg BASE_RUNTIME=debian:bookworm-slim -t my-llama .
#
# SOURCE=local takes the tree in the build context's folder llama.cpp/ in place of a commit from git.
ARG BASE_BUILD=nvidia/cuda:12.8.1-devel-ubuntu24.04@sha256:520292dbb4f755fd360766059e62956e9379485d9e073bbd2f6e3c20c270ed66
ARG BASE_RUNTIME=nvidia/cuda:12.8.1-runtime-ubuntu24.04@sha256:ebef3c171eeef0298e4eb2e4be843105edf3b8b0ac45e0b43acee358e8046867
ARG SOURCE=git

# --- tools: taken from the base where it has them, so that a prepared base builds without a network -------------------
FROM ${BASE_BUILD} AS tools
ARG BACKEND=cuda
RUN set -eu; need=""; \
    for pair in cmake:cmake g++:g++ ninja:ninja-build ccache:ccache git:git; do \
        command -v "${pair%%:*}" >/dev/null || need="$need ${pair#*:}"; \
    done; \
    [ -d /etc/ssl/certs ] && [ -n "$(ls /etc/ssl/certs)" ] || need="$need ca-certificates"; \
    if [ "$BACKEND" = vulkan ]; then \
        command -v glslc >/dev/null || need="$need glslc"; \
        [ -e /usr/include/vulkan/vulkan.h ] || need="$need libvulkan-dev"; \
        [ -d /usr/include/spirv ] || need="$need spirv-headers"; \
    fi; \
    if [ -n "$need" ]; then \
        apt-get update; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $need; \
        rm -rf /var/lib/apt/lists/*; \
    fi

# --- source: one of two, chosen by SOURCE; the other is not run -------------------------------------------------------
FROM tools AS source-git
ARG LLAMA_REPO=https://github.com/ggml-org/llama.cpp
ARG LLAMA_COMMIT=8be759e6f70d629638a7eb70db3824cbdcea370b
RUN set -eu; git init -q /src; cd /src; \
    git fetch -q --depth 1 "$LLAMA_REPO" "$LLAMA_COMMIT"; \
    git -c advice.detachedHead=false checkout -q FETCH_HEAD; \
    found=$(git rev-parse HEAD); \
    [ "$found" = "$LLAMA_COMMIT" ] || { echo "expected commit $LLAMA_COMMIT, found $found" >&2; exit 1; }; \
    rm -rf .git

FROM tools AS source-local
COPY llama.cpp /src

FROM source-${SOURCE} AS build
ARG BACKEND=cuda
# Every CPU variant is built as a library of its own and the fastest that the machine can run is loaded, so the image
# does not depend on the machine that built it. The web page is left out because building it downloads. Warnings are
# off because they fill the log: BuildKit cuts a step's output at 2 MiB, and the error of a failed build comes last.
ARG FLAGS="-DGGML_NATIVE=OFF -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_ALL_WARNINGS=OFF"
ARG EXTRA_FLAGS=""
# Turing to Blackwell: machine code where it is common, and code that the driver compiles for the others.
ARG CUDA_ARCHITECTURES="75-virtual;80-virtual;86-real;89-real;90-virtual;120a-real"
ARG BUILD_NUMBER=9784
ARG BUILD_COMMIT=8be759e6f
# CPU variants to leave out. Sapphire Rapids' uses AMX, and dies with SIGILL on virtual CPUs that only advertise it.
ARG LEAVE_OUT="sapphirerapids"
ARG JOBS=0
# The build folder is a layer's own, the compiler cache is shared by all builds on this machine.
RUN --mount=type=cache,target=/ccache,id=gguf-bench-ccache,sharing=shared set -eu; \
    export CCACHE_DIR=/ccache CCACHE_MAXSIZE=8G CCACHE_COMPILERCHECK=content CCACHE_NOHASHDIR=1; \
    set -f; \
    case "$BACKEND" in \
        cpu) backend="" ;; \
        cuda) backend="-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=$CUDA_ARCHITECTURES -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined" ;; \
        vulkan) backend="-DGGML_VULKAN=ON" ;; \
        *) echo "BACKEND: expected cpu, cuda or vulkan, found $BACKEND" >&2; exit 2 ;; \
    esac; \
    cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DFETCHCONTENT_FULLY_DISCONNECTED=ON \
        -DCMAKE_INSTALL_RPATH='$ORIGIN' -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
        -DGGML_CCACHE=OFF -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
        -DLLAMA_BUILD_NUMBER="$BUILD_NUMBER" -DLLAMA_BUILD_COMMIT="$BUILD_COMMIT" $FLAGS $backend $EXTRA_FLAGS; \
    jobs=$JOBS; [ "$jobs" -gt 0 ] || jobs=$(nproc); \
    cmake --build /build -j "$jobs" --target llama-server llama-bench; \
    set +f; ccache --show-stats | sed -n '1,12p'; \
    mkdir -p /opt/llama; \
    cp -P /build/bin/llama-server /build/bin/llama-bench /build/bin/*.so* /opt/llama/; \
    for variant in $LEAVE_OUT; do rm -f "/opt/llama/libggml-cpu-$variant.so"; done; \
    cp /src/LICENSE /opt/llama/

# --- runtime ----------------------------------------------------------------------------------------------------------
FROM ${BASE_RUNTIME} AS runtime
ARG BACKEND=cuda
RUN set -eu; need=""; \
    [ -x /usr/bin/tini ] || need="$need tini"; \
    ldconfig -p | grep -q libgomp.so.1 || need="$need libgomp1"; \
    if [ "$BACKEND" = vulkan ]; then \
        ldconfig -p | grep -q libvulkan.so.1 || need="$need libvulkan1"; \
        [ -d /usr/share/vulkan/icd.d ] || need="$need mesa-vulkan-drivers"; \
    fi; \
    if [ -n "$need" ]; then \
        apt-get update; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $need; \
        rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=build /opt/llama /opt/llama
# A user without a name, a home or any rights; the engine may set another that can read the model.
USER 10001:10001
WORKDIR /opt/llama
EXPOSE 8080
# The bench asks /health itself: a probe that starts a process every few seconds would disturb what is measured.
HEALTHCHECK NONE
# llama-server handles SIGTERM only once the model is loaded; as PID 1 it would ignore it until then.
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/opt/llama/llama-server"]

ARG FLAGS="-DGGML_NATIVE=OFF -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_ALL_WARNINGS=OFF"
ARG EXTRA_FLAGS=""
ARG CUDA_ARCHITECTURES="75-virtual;80-virtual;86-real;89-real;90-virtual;120a-real"
ARG LEAVE_OUT="sapphirerapids"
ARG LLAMA_COMMIT=8be759e6f70d629638a7eb70db3824cbdcea370b
ARG BUILD_NUMBER=9784
ARG BUILD_COMMIT=8be759e6f
ARG SOURCE=git
ARG SOURCE_SHA256=""
ARG BASE_BUILD
ARG BASE_RUNTIME
ARG BASE_BUILD_DIGEST=""
ARG BASE_RUNTIME_DIGEST=""
LABEL org.opencontainers.image.title="llama-server" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.revision="${LLAMA_COMMIT}" \
      org.opencontainers.image.base.name="${BASE_RUNTIME}" \
      org.gguf-bench.kind="llama-server" \
      org.gguf-bench.commit="${LLAMA_COMMIT}" \
      org.gguf-bench.build="${BUILD_NUMBER}" \
      org.gguf-bench.build-commit="${BUILD_COMMIT}" \
      org.gguf-bench.backend="${BACKEND}" \
      org.gguf-bench.flags="${FLAGS} ${EXTRA_FLAGS}" \
      org.gguf-bench.cuda-architectures="${CUDA_ARCHITECTURES}" \
      org.gguf-bench.left-out="${LEAVE_OUT}" \
      org.gguf-bench.source="${SOURCE}" \
      org.gguf-bench.source-sha256="${SOURCE_SHA256}" \
      org.gguf-bench.base-build="${BASE_BUILD}" \
      org.gguf-bench.base-build-digest="${BASE_BUILD_DIGEST}" \
      org.gguf-bench.base-runtime="${BASE_RUNTIME}" \
      org.gguf-bench.base-runtime-digest="${BASE_RUNTIME_DIGEST}"
