#!/bin/sh
# Everything that needs a GPU, in one go, on a machine that has torch and NumPy and may have no network.
#
#   scripts/gpu_check.sh --pack     where there is a network: download wheels into .gpu_packages/ (14 MB)
#   scripts/gpu_check.sh [...]      on the machine with the GPU: do the checks (--help lists the options)
#
# PYTHON names the interpreter with torch; python3 by default.
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "gpu_check: $python is not Python 3.11 or newer" >&2
  echo 'hint: name an interpreter that is, and that has torch, in the variable PYTHON' >&2
  exit 4
fi
exec "$python" "$(dirname -- "$0")/gpu_check.py" "$@"
