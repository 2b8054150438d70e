#!/usr/bin/env bash
# Runs VPROF smoke with ARGUMENTS, in which quotes work as in a shell and nothing else does. The table goes to the step's
# summary, the verdict of a training that is not safe to an annotation, and the result to a file, the output result.
set -euo pipefail

result=$RUNNER_TEMP/vprof-smoke.json
echo "result=$result" >> "$GITHUB_OUTPUT"
words=$RUNNER_TEMP/vprof-arguments
xargs printf '%s\0' <<< "$ARGUMENTS" > "$words"
arguments=()
while IFS= read -r -d '' word; do arguments+=("$word"); done < "$words"

code=0
"$VPROF" smoke "${arguments[@]}" ${BASELINE:+--watch-baseline "$BASELINE" --tolerance "$TOLERANCE"} \
  --format markdown --export "$result" > "$RUNNER_TEMP/vprof-smoke.md" 2> "$RUNNER_TEMP/vprof-smoke.log" || code=$?
tee -a "$GITHUB_STEP_SUMMARY" < "$RUNNER_TEMP/vprof-smoke.md"
cat "$RUNNER_TEMP/vprof-smoke.log" >&2
if [ "$code" != 0 ]; then
  verdict=$(grep -m1 '^NOT SAFE' "$RUNNER_TEMP/vprof-smoke.md" || true)
  text="${verdict:+$verdict }$(cat "$RUNNER_TEMP/vprof-smoke.log")"
  text=${text//'%'/'%25'} # as workflow commands want it
  text=${text//$'\r'/'%0D'}
  echo "::error title=vprof smoke::${text//$'\n'/'%0A'}"
fi
exit "$code"
