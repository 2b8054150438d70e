package query

import (
	"bytes"
	"embed"
	"fmt"
	"runtime"
)

// GPUs describes a GPU of each architecture, in cuDNN's words.
//
//go:embed ask/boards/*.json
var gpus embed.FS

// stubs take cuBLASLt's place where cuDNN is asked (ask/cublaslt.c), built for Linux by "make stub" there.
//
//go:embed stub/*.so
var stubs embed.FS

// GPU returns a description of a GPU that cuDNN reads, for an architecture by [cudnn.Generation]. GPUs of one
// architecture get the same answers.
func GPU(generation int) []byte {
	text, err := gpus.ReadFile(fmt.Sprintf("ask/boards/sm%d.json", generation))
	if err != nil {
		panic(err) // every generation has one
	}
	return text
}

// stubName is the name under which cuBLASLt of CUDA 13 is found.
const stubName = "libcublasLt.so.13"

// Stubs returns stub libraries in place of cuBLASLt, by name; nil if this machine has none.
func Stubs() map[string][]byte {
	if runtime.GOOS != "linux" {
		return nil
	}
	library, err := stubs.ReadFile("stub/" + runtime.GOARCH + ".so")
	if err != nil {
		return nil
	}
	// The name inside has as many letters in CUDA 12.
	const older = "libcublasLt.so.12"
	return map[string][]byte{
		stubName: library,
		older:    bytes.ReplaceAll(library, []byte(stubName), []byte(older)),
	}
}
