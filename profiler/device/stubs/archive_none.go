//go:build !linux || !(amd64 || arm64)

package stubs

// stubArchive is empty where scripts do not run on a simulated GPU.
var stubArchive []byte
