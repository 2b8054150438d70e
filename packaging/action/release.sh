#!/usr/bin/env bash
# Downloads the vprof of a release (TAG, from URL) for this machine and names it as the output vprof. Without such a
# release, as on a branch or a fork, there is no output, and the action builds vprof.
set -euo pipefail

[[ $TAG == v[0-9]* ]] || { echo "$TAG is no release: vprof is built"; exit 0; }
lower() { tr '[:upper:]' '[:lower:]' <<< "$1"; }
system=$(lower "${RUNNER_OS/macOS/darwin}")
machine=$(lower "${RUNNER_ARCH/X64/amd64}")
form=tar.gz
[ "$system" != windows ] || form=zip
archive=vprof_${TAG#v}_${system}_${machine}.$form
folder=$(mktemp -d "$RUNNER_TEMP/vprof-XXXXXX")
cd "$folder"
for file in checksums.txt "$archive"; do
  curl -fsSL --retry 3 -o "$file" "$URL/$TAG/$file" || { echo "there is no $URL/$TAG/$file: vprof is built"; exit 0; }
done
grep -E "^[0-9a-f]{64}  $archive\$" checksums.txt | if command -v sha256sum > /dev/null; then sha256sum -c -; else shasum -a 256 -c -; fi
case $form in
  zip) unzip -q "$archive" vprof.exe && program=vprof.exe ;;
  *) tar -xzf "$archive" vprof && program=vprof ;;
esac
echo "vprof=$folder/$program" >> "$GITHUB_OUTPUT"
