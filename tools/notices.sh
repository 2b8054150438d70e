#!/usr/bin/env bash
# Prints the licenses of all modules that the vprof binary is linked from. MIT and BSD licenses ask for their text in
# copies of the binary.
set -euo pipefail
cd "$(dirname "$0")/.."

printf 'vprof contains the following modules, each under its license.\n'
# With cgo, since that build has more modules.
CGO_ENABLED=${CGO_ENABLED:-1} go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' \
  -tags cuda ./cmd/vprof | sort -u | while read -r path version dir; do
  texts=$(find "$dir" -maxdepth 1 -type f \( -iname 'LICENSE*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) | sort)
  [ -n "$texts" ] || { echo "notices: $path has no license text" >&2; exit 1; }
  printf '\n%s\n%s %s\n\n' "$(printf '=%.0s' {1..80})" "$path" "$version"
  cat $texts
done
printf '\n%s\nThe Go standard library and runtime\n\n' "$(printf '=%.0s' {1..80})"
cat "$(go env GOROOT)/LICENSE"
