#!/usr/bin/env bash
# Counts the lines of tracked files by kind, and fails if Go without tests and tools is above the limit: what is
# added needs room, which removing or simplifying something else makes.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=139000

count() { # lines of the files on standard input, NUL between them
  xargs -0 -r cat | wc -l
}

product=$(git ls-files -z '*.go' ':!*_test.go' ':!tools/' | count)
printf '%7d  Go without tests and tools (at most %d)\n' "$product" "$limit"
printf '%7d  Go tests\n' "$(git ls-files -z '*_test.go' | count)"
printf '%7d  Go tools\n' "$(git ls-files -z 'tools/*.go' ':(exclude,glob)**/*_test.go' | count)"
printf '%7d  Python\n' "$(git ls-files -z '*.py' | count)"
printf '%7d  C and CUDA C\n' "$(git ls-files -z '*.c' '*.h' '*.cu' '*.cuh' '*.inc' | count)"
printf '%7d  text: help, tables, templates, pages and their scripts\n' \
  "$(git ls-files -z 'cli/**/*.txt' 'bench/**/*.yaml' 'bench/**/*.tmpl' 'bench/**/*.js' 'bench/**/*.css' \
    'profiler/**/*.txt' 'profiler/**/*.csv' 'web/*' ':(exclude,glob)**/testdata/**' | count)"
printf '%7d  words of documents\n' "$(git ls-files -z '*.md' ':(exclude,glob)**/testdata/**' | xargs -0 cat | wc -w)"
if [ "$product" -gt "$limit" ]; then
  echo "lines: $product lines of Go without tests and tools are above the limit of $limit" >&2
  exit 1
fi
