//go:build cuda && linux && cgo

package cudalib

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, name string) string {
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(raw)
}

// found returns the first group of every match, sorted, each once.
func found(pattern, text string) []string {
	var names []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

const prototype = `(?m)^CUresult (cu\w+)\(`

// Whatever can be called has a jump: the linker does not say if one is missing, the call would.
func TestEveryDeclaredCallHasAJump(t *testing.T) {
	declared := found(prototype, read(t, "include/cuda.h"))
	jumps := found(`X\((cu\w+)\)`, read(t, "syms.h"))
	require.Equal(t, slices.DeleteFunc(declared, func(s string) bool { return s == "cuInit" }), jumps)
	require.Greater(t, len(jumps), 150)
}

// TestHeaderIsNVIDIAs compares our header with the real one in the folder that
// VPROF_CUDA_INCLUDE names: the same functions, constants and layouts.
func TestHeaderIsNVIDIAs(t *testing.T) {
	include := os.Getenv("VPROF_CUDA_INCLUDE")
	if include == "" {
		t.Skip("VPROF_CUDA_INCLUDE names no folder with NVIDIA's cuda.h (make cuda-header sets it)")
	}
	ours := read(t, "include/cuda.h")
	var c strings.Builder
	c.WriteString("#include <cuda.h>\n#include <stddef.h>\n#include <stdio.h>\n#define CUDAAPI\n")
	// A second declaration is an error unless it is the same.
	for _, m := range regexp.MustCompile(`(?ms)^CUresult cu\w+\(.*?;$`).FindAllString(ours, -1) {
		c.WriteString(m + "\n")
	}
	for _, m := range regexp.MustCompile(`\b(CU\w+) = (0x[0-9a-f]+|\d+)`).FindAllStringSubmatch(ours, -1) {
		fmt.Fprintf(&c, "_Static_assert(%s == %s, \"%s\");\n", m[1], m[2], m[1])
	}
	c.WriteString("int main(void) {\n")
	for _, m := range regexp.MustCompile(`(?ms)^typedef struct \w+ \{(.*?)^\} (\w+);`).FindAllStringSubmatch(ours, -1) {
		fmt.Fprintf(&c, "printf(\"%s %%zu\\n\", sizeof(%s));\n", m[2], m[2])
		for _, field := range found(`(\w+)(?:\[\d+\])?;`, regexp.MustCompile(`(?s)\{.*\}`).ReplaceAllString(m[1], "")) {
			fmt.Fprintf(&c, "printf(\"%s.%s %%zu\\n\", offsetof(%s, %s));\n", m[2], field, m[2], field)
		}
	}
	c.WriteString("}\n")
	require.Equal(t, compiled(t, c.String(), include), compiled(t, c.String(), "include"))
}

// compiled returns what a C program prints when it is compiled with a folder of headers.
func compiled(t *testing.T, program, include string) string {
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "check.c"), filepath.Join(dir, "check")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o600))
	out, err := exec.Command("cc", "-I"+include, "-o", binary, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(binary).Output()
	require.NoError(t, err)
	return string(out)
}
