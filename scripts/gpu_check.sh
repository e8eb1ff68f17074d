#!/bin/sh
# Everything that needs a GPU, in one go, on a machine that may have no network and lacks our packages.
#
#   scripts/gpu_check.sh --pack     where there is a network: put wheels into .gpu_packages/ (12 MB)
#   scripts/gpu_check.sh [...]      on the machine with the GPU: do the checks (gpu_check.py --help)
#
# PYTHON names the interpreter with torch; python3 by default.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
python=${PYTHON:-python3}
packages=$root/.gpu_packages

if [ "${1:-}" = --pack ]; then
  rm -rf "$packages"
  mkdir "$packages"
  # Compiled for each Python that the machine may have; the rest is the same for all.
  for version in 3.11 3.12 3.13 3.14; do
    "$python" -m pip download --quiet --no-deps --constraint "$root/constraints.txt" \
      --only-binary :all: --implementation cp --python-version "$version" \
      --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
      --dest "$packages" pydantic_core PyYAML safetensors
  done
  "$python" -m pip download --quiet --no-deps --constraint "$root/constraints.txt" \
    --only-binary :all: --dest "$packages" \
    annotated-types filelock fuxictr pydantic tabulate tqdm typing-inspection typing_extensions
  exec ls -s "$packages"
fi

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if [ -d "$packages" ]; then
  tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  for wheel in "$packages"/*.whl; do
    case $wheel in
      *-none-any.whl | *-abi3-* | *-"$tag"-"$tag"-*) "$python" -m zipfile -e "$wheel" "$site" ;;
    esac
  done
fi
PYTHONPATH=$root:$root/benchmarks:$site${PYTHONPATH:+:$PYTHONPATH} \
  "$python" "$root/scripts/gpu_check.py" "$@"
