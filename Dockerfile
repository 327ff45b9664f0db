# syntax=docker/dockerfile:1
#
# The image of extender, planner and scaler: `docker build -t berthmaster:0.1.0 .`

FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY requirements.lock ./
# Everything in the lock file, checked by hash; what the image needs is then taken from these files and nowhere else.
RUN pip download --quiet --require-hashes --only-binary :all: --dest wheels -r requirements.lock
COPY pyproject.toml ./
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
        print(*p['dependencies'], *p['optional-dependencies']['observer'], sep='\n')" \
        > requirements.txt \
    && python -m venv --without-pip /opt/venv \
    && pip --python /opt/venv/bin/python install --quiet --no-index --find-links wheels -r requirements.txt
COPY fleet /opt/berthmaster/fleet
COPY binpack /opt/berthmaster/binpack
COPY scaler /opt/berthmaster/scaler
RUN /opt/venv/bin/python -m compileall -q -j 0 /opt/berthmaster /opt/venv/lib

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="berthmaster" \
      org.opencontainers.image.description="Places, warms and scales model-serving pods on Kubernetes." \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/berthmaster /opt/berthmaster
COPY LICENSE NOTICE /opt/berthmaster/
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/berthmaster \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# No name in /etc/passwd, no home, nothing to write to: the processes need neither.
USER 65532:65532
WORKDIR /opt/berthmaster
ENTRYPOINT ["python", "-m", "binpack"]
CMD ["--help"]
