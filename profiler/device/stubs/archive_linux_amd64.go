package stubs

import _ "embed" // the archive

//go:embed linux_amd64.tar.xz
var stubArchive []byte
