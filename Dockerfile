# Fleetlog with everything that runs beside a log; the versions are those of the tests.
FROM python:3.11-slim

WORKDIR /opt/fleetlog
COPY deploy/image.lock .
RUN pip install --no-cache-dir --require-hashes --no-deps -r image.lock

COPY pyproject.toml README.md LICENSE ./
COPY commands commands
COPY streams streams
COPY projections projections
COPY robot_gateway robot_gateway
COPY fleetlog fleetlog
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
 && useradd --system --create-home --home-dir /var/lib/fleetlog fleetlog \
 && install -d -o fleetlog -g fleetlog /var/lib/fleetlog/projections /var/lib/fleetlog/bulk

USER fleetlog
WORKDIR /var/lib/fleetlog
ENV FLEETLOG_PROJECTOR_FOLDER=/var/lib/fleetlog/projections
ENTRYPOINT ["fleetlog"]
CMD ["--help"]
