package stubs

import _ "embed" // the archive

//go:embed linux_arm64.tar.xz
var stubArchive []byte
