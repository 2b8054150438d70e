package oracle

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

// standIns take cuBLASLt's place where cuDNN is asked (ask/cublaslt.c), built for
// Linux by "make standin" there.
//
//go:embed standin/*.so
var standIns embed.FS

// GPU returns the description of a GPU, for cuDNN: of one architecture, by the
// generation that [cudnn.Generation] gives. GPUs of one architecture get the same
// answers.
func GPU(generation int) []byte {
	text, err := gpus.ReadFile(fmt.Sprintf("ask/boards/sm%d.json", generation))
	if err != nil {
		panic(err) // every generation has one
	}
	return text
}

// standInName is the name under which cuBLASLt of CUDA 13 is found.
const standInName = "libcublasLt.so.13"

// StandIns are libraries that take cuBLASLt's place, by their names; nil where
// there are none for this machine.
func StandIns() map[string][]byte {
	if runtime.GOOS != "linux" {
		return nil
	}
	library, err := standIns.ReadFile("standin/" + runtime.GOARCH + ".so")
	if err != nil {
		return nil
	}
	// The name inside has as many letters in CUDA 12.
	const older = "libcublasLt.so.12"
	return map[string][]byte{
		standInName: library,
		older:       bytes.ReplaceAll(library, []byte(standInName), []byte(older)),
	}
}
