#!/usr/bin/env bash
# Runs VPROF smoke with ARGUMENTS, in which quotes work as in a shell and nothing else does. The table goes to the step's
# summary, the verdict of a training that is not safe to an annotation. Files are the outputs: the result, the text of a
# comment (the verdict over the table), and SARIF with the verdict at the first file of ARGUMENTS.
set -euo pipefail

result=$RUNNER_TEMP/vprof-smoke.json
comment=$RUNNER_TEMP/vprof-comment.md
sarif=$RUNNER_TEMP/vprof-smoke.sarif
printf '%s\n' "result=$result" "comment=$comment" "sarif=$sarif" >> "$GITHUB_OUTPUT"
words=$RUNNER_TEMP/vprof-arguments
if ! xargs printf '%s\0' <<< "$ARGUMENTS" > "$words" 2> /dev/null; then
  text="arguments: a quote is not closed on its line, or a backslash is last: ${ARGUMENTS//'%'/'%25'}"
  echo "::error title=vprof smoke::${text//$'\n'/'%0A'}; close the quote, or write \\' or \\\" for a literal one"
  exit 2
fi
arguments=()
while IFS= read -r -d '' word; do arguments+=("$word"); done < "$words"

code=0
"$VPROF" smoke ${BASELINE:+--watch-baseline "$BASELINE" --tolerance "$TOLERANCE"} --format markdown --export "$result" \
  "${arguments[@]}" > "$RUNNER_TEMP/vprof-smoke.md" 2> "$RUNNER_TEMP/vprof-smoke.log" || code=$?
tee -a "$GITHUB_STEP_SUMMARY" < "$RUNNER_TEMP/vprof-smoke.md"
cat "$RUNNER_TEMP/vprof-smoke.log" >&2
verdict=$(grep -m1 -E '^(NOT SAFE|GROWN|SAFE)' "$RUNNER_TEMP/vprof-smoke.md" || true)
printf '**%s**\n\n' "${verdict:-$(tail -n 1 "$RUNNER_TEMP/vprof-smoke.log")}" | cat - "$RUNNER_TEMP/vprof-smoke.md" > "$comment"
file=
for word in "${arguments[@]}" "${BASELINE:-}"; do [ -n "$file" ] || [ ! -f "$word" ] || file=$word; done
jq -n --arg text "$verdict" --arg file "${file:-.}" --argjson code "$code" '{version: "2.1.0", runs: [{
  tool: {driver: {name: "vprof", rules: [{id: "gpu-memory", shortDescription: {text: "GPU memory of a training step"}}]}},
  results: [select($code != 0) | {ruleId: "gpu-memory", level: "error", message: {text: $text},
    locations: [{physicalLocation: {artifactLocation: {uri: $file}, region: {startLine: 1}}}]}]}]}' > "$sarif"
if [ "$code" != 0 ]; then
  text="${verdict:+$verdict }$(cat "$RUNNER_TEMP/vprof-smoke.log")"
  text=${text//'%'/'%25'} # as workflow commands want it
  text=${text//$'\r'/'%0D'}
  echo "::error title=vprof smoke::${text//$'\n'/'%0A'}"
fi
exit "$code"
