# All services and every other command of `lingua` in one image: `make image`, then
#   podman run lingua-scheduler:0.1.0 serve pool
# A tag is whatever its registry says today. `make release-image` adds the digest.
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /build
COPY requirements.lock pyproject.toml ./
RUN python3 -m venv /uv \
    && sed -n '/^uv==/,/[^\\]$/p' requirements.lock > uv.lock \
    && /uv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r uv.lock
# The lock holds the tools of developers too. As a constraint it pins, by hash, only what is needed.
RUN python3 -m venv --without-pip /opt/lingua \
    && /uv/bin/uv pip install --no-cache --compile-bytecode --python /opt/lingua/bin/python \
       --constraint requirements.lock --requirement pyproject.toml
COPY README.md ./
COPY lua lua
COPY sdk sdk
COPY services services
COPY src src
RUN /uv/bin/uv pip install --no-cache --compile-bytecode --python /opt/lingua/bin/python \
    --no-deps --build-constraints requirements.lock .

FROM python:${PYTHON}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Lingua Scheduler" \
      org.opencontainers.image.description="The scheduler of a live, face-to-face speech translator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/lingua /opt/lingua
# All bytecode is there already, and the root may be read-only.
ENV PATH=/opt/lingua/bin:$PATH PYTHONDONTWRITEBYTECODE=1
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
# gRPC and metrics of pool, dispatcher and gateway.
EXPOSE 7710 7720 7730 9710 9720 9730
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["lingua", "health", "--pid", "1", "--timeout", "3"]
ENTRYPOINT ["lingua"]
