#!/usr/bin/env bash
# What the GitHub Action runs: annotations on standard output, a summary in the job's page, SARIF on request.
#
# Reads NB2DDP_PATHS and NB2DDP_ARGUMENTS (one a line), NB2DDP_MODE (check or convert), NB2DDP_OUTPUT_DIR,
# NB2DDP_SARIF_FILE, NB2DDP_REPORT_FILE, NB2DDP_REHEARSE (true or not), and GitHub's own RUNNER_TEMP,
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
if [[ -n "${NB2DDP_OUTPUT_DIR:-}" ]]; then
  arguments+=("--output-dir=$NB2DDP_OUTPUT_DIR")
fi
if [[ -n "${NB2DDP_REPORT_FILE:-}" ]]; then
  arguments+=("--report=$NB2DDP_REPORT_FILE")
fi
if [[ -n "${NB2DDP_SARIF_FILE:-}" ]]; then
  arguments+=("--sarif-file=$NB2DDP_SARIF_FILE")
fi
if [[ "${NB2DDP_REHEARSE:-false}" == true ]]; then
  arguments+=(--rehearse)
fi
while IFS= read -r line; do
  if [[ -n "$line" ]]; then arguments+=("$line"); fi
done <<< "${NB2DDP_ARGUMENTS:-}"
arguments+=(--)
while IFS= read -r line; do
  if [[ -n "$line" ]]; then arguments+=("$line"); fi
done <<< "${NB2DDP_PATHS:-.}"

code=0
summary="${RUNNER_TEMP:?}/nb2ddp-summary.md"
rm -f "$summary"
nb2ddp --format=github --summary-file="$summary" "${arguments[@]}" || code=$?
if [[ -f "$summary" ]]; then
  cat "$summary" >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
fi
if [[ -n "${GITHUB_OUTPUT:-}" ]]; then
  echo "exit-code=$code" >> "$GITHUB_OUTPUT"
fi
exit "$code"
