# One image for both kinds of machine: torch's wheel brings the CUDA runtime, `docker run --gpus all` the driver, and
# without a GPU everything runs on the CPU.
#
#   docker build -t prime-bench .
#   docker run --rm --gpus all -v "$PWD/data:/data" -v "$PWD/runs:/runs" prime-bench run main13
#
# A folder that is mounted must be writable for user 1000, or add `--user "$(id -u)"`.
FROM python:3.11.14-slim-bookworm

# g++ is what `--compile` needs, git what tells a record its commit. Debian's archive keeps one version of each, so a
# pinned one would not build next month.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ git make \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/prime-bench
COPY . .
RUN make install VENV=/opt/venv EXTRAS= \
 && rm -rf /root/.cache \
 && git config --system --add safe.directory /opt/prime-bench \
 && useradd --create-home --uid 1000 bench \
 && install --directory --owner=bench /data /runs

ENV PATH=/opt/venv/bin:$PATH PRIME_BENCH_DATA=/data PRIME_BENCH_RUNS=/runs
USER 1000
WORKDIR /home/bench
VOLUME ["/data", "/runs"]
ENTRYPOINT ["prime-bench"]
CMD ["--help"]
