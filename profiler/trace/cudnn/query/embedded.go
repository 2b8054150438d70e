package query

import (
	"bytes"
	"embed"
	"fmt"
	"runtime"
)

// gpus has a cuDNN description of one GPU of each architecture.
//
//go:embed ask/boards/*.json
var gpus embed.FS

// stubs are libraries that replace cuBLASLt while cuDNN is queried (ask/cublaslt.c), built for Linux by "make stub"
// there.
//
//go:embed stub/*.so
var stubs embed.FS

// GPU returns cuDNN's description of a GPU of an architecture, given as [cudnn.Generation] returns it. cuDNN answers
// equally for all GPUs of one architecture.
func GPU(generation int) []byte {
	text, err := gpus.ReadFile(fmt.Sprintf("ask/boards/sm%d.json", generation))
	if err != nil {
		panic(err) // every generation has one
	}
	return text
}

// stubName is the file name of cuBLASLt in CUDA 13.
const stubName = "libcublasLt.so.13"

// Stubs returns stub libraries that replace cuBLASLt, by file name; nil if vprof has none for this operating system.
func Stubs() map[string][]byte {
	if runtime.GOOS != "linux" {
		return nil
	}
	library, err := stubs.ReadFile("stub/" + runtime.GOARCH + ".so")
	if err != nil {
		return nil
	}
	// The library's name inside the file has equally many characters in CUDA 12.
	const older = "libcublasLt.so.12"
	return map[string][]byte{stubName: library, older: bytes.ReplaceAll(library, []byte(stubName), []byte(older))}
}
