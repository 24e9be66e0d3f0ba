# All services and every other command of `lingua` in one image: `make image`, then
#   podman run lingua-scheduler:0.3.0.dev0 serve pool
# A tag is whatever its registry says today. `make release-image` adds the digest.
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements.lock requirements-build.lock pyproject.toml ./
# What builds the project stays in this stage; what runs it goes to /opt/lingua.
RUN python3 -m pip install --require-hashes -r requirements-build.lock \
    && python3 -m venv --without-pip /opt/lingua \
    && python3 -m pip --python /opt/lingua/bin/python install --require-hashes -r requirements.lock
COPY LICENSE README.md ./
COPY lua lua
COPY sdk sdk
COPY services services
COPY src src
RUN python3 -m pip wheel --no-deps --no-build-isolation --wheel-dir wheel . \
    && python3 -m pip --python /opt/lingua/bin/python install --no-deps wheel/*.whl

FROM python:${PYTHON}
ARG VERSION=0.3.0.dev0
LABEL org.opencontainers.image.title="Lingua Scheduler" \
      org.opencontainers.image.description="The scheduler of a live, face-to-face speech translator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/lingua /opt/lingua
# All bytecode is there already, and the root may be read-only.
ENV PATH=/opt/lingua/bin:$PATH PYTHONDONTWRITEBYTECODE=1
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
# gRPC and metrics of pool, dispatcher and gateway; the web entry; the console and its metrics.
EXPOSE 7710 7720 7730 7740 7750 9710 9720 9730 9750
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["lingua", "health", "--pid", "1", "--timeout", "3"]
ENTRYPOINT ["lingua"]
