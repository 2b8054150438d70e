//go:build !linux || !(amd64 || arm64)

package stubs

// stubArchive is empty on operating systems where scripts do not run on a simulated GPU.
var stubArchive []byte
