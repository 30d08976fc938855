#!/usr/bin/env bash
# What the GitHub Action runs: annotations on standard output, a summary in the job's page, SARIF on request.
#
# Reads NB2DDP_PATHS and NB2DDP_ARGUMENTS (one a line), NB2DDP_MODE (check or convert), NB2DDP_OUTPUT_DIR,
# NB2DDP_SARIF_FILE, NB2DDP_REPORT_FILE, NB2DDP_REHEARSE (true or not), NB2DDP_BASE (the commit that a pull request is
# for, empty outside of one), and GitHub's own RUNNER_TEMP, GITHUB_STEP_SUMMARY and GITHUB_OUTPUT. Leaves the summary in
# RUNNER_TEMP for comment.py, and ends with nb2ddp's exit code.
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
if [[ -n "${NB2DDP_BASE:-}" ]]; then
  # A checkout has its own commit alone; where the base cannot be had, the summary goes without what changed.
  git cat-file -e "$NB2DDP_BASE^{commit}" 2> /dev/null ||
    git fetch --quiet --no-tags --depth=1 origin "$NB2DDP_BASE" 2> /dev/null || NB2DDP_BASE=""
fi
if [[ -n "${NB2DDP_BASE:-}" ]]; then
  arguments+=("--since=$NB2DDP_BASE")
fi
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
