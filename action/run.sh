#!/usr/bin/env bash
# What the GitHub Action runs: annotations on standard output, a summary in the job's page.
#
# Reads NB2DDP_PATHS and NB2DDP_ARGUMENTS (one a line), NB2DDP_MODE (check or convert), and GitHub's own
# GITHUB_STEP_SUMMARY and GITHUB_OUTPUT. Ends with nb2ddp's exit code.
set -euo pipefail

arguments=()
case "${NB2DDP_MODE:-check}" in
  check) arguments+=(--check) ;;
  convert) ;;
  *)
    echo "::error::nb2ddp: mode must be check or convert, not '${NB2DDP_MODE//[^A-Za-z0-9_-]/?}'"
    exit 2
    ;;
esac
while IFS= read -r line; do
  if [[ -n "$line" ]]; then arguments+=("$line"); fi
done <<< "${NB2DDP_ARGUMENTS:-}"
arguments+=(--)
while IFS= read -r line; do
  if [[ -n "$line" ]]; then arguments+=("$line"); fi
done <<< "${NB2DDP_PATHS:-.}"

code=0
nb2ddp --format=github "${arguments[@]}" || code=$?
if [[ -n "${GITHUB_OUTPUT:-}" ]]; then
  echo "exit-code=$code" >> "$GITHUB_OUTPUT"
fi
exit "$code"
