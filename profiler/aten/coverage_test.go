package aten

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vprof/vprof/tools/golden"
)

const coverageIntro = `# Operators

For someone whose exported model (` + "`--model FILE.pt2`" + `) calls an operator that vprof does not know: the
error names it, with its module and line. ` + "`vprof run`" + ` and ` + "`vprof capture --step`" + ` need no table of
operators.

The table (profiler/aten) holds what each operator of eager PyTorch 2.11 allocates, keeps for backward and frees. A
test writes this page (` + "`make golden`" + `).

The workspaces of cuSOLVER are not counted. cuSOLVER factorizes matrices for cholesky, qr, eigh and svd, and for lu,
inv, solve and det of single matrices or of 512 rows and more. Their sizes are not published; they live for one call.

`

// TestCoveragePageIsCurrent writes docs/lab/operators.md: which of PyTorch's operators are in the table.
func TestCoveragePageIsCurrent(t *testing.T) {
	schemas := published(t)
	calls := map[string]int{}
	for _, c := range loadCalls(t, "testdata/calls.jsonl.gz") {
		calls[strings.TrimSuffix(nameOf(c.Target), ".default")]++
	}
	names, unknown := map[string]bool{}, map[string]bool{}
	recorded, rows := 0, 0
	for name := range schemas {
		base, overload, _ := strings.Cut(strings.TrimPrefix(name, "aten::"), ".")
		if index()[name] != nil {
			names[base] = true
			rows++
			if calls[name] > 0 {
				recorded++
			}
		} else if public(base, overload) {
			unknown[base] = true
		}
	}
	maps.DeleteFunc(unknown, func(base string, _ bool) bool { return names[base] })
	var b strings.Builder
	b.WriteString(coverageIntro)
	fmt.Fprintf(&b, "The table has %d operators (overloads) of %d names. Calls of %d of them are recorded with PyTorch\n"+
		"(profiler/aten/testdata), others through [conformance.md](conformance.md).\n\n", rows, len(names), recorded)
	b.WriteString("## Not known\n\nThese are the operators that an exported model could call and the table does not " +
		"have. Internal ones,\nquantized and sparse kernels and out= forms are left out.\n\n")
	for part := range slices.Chunk(slices.Sorted(maps.Keys(unknown)), 100) {
		b.WriteString(strings.Join(part, ", ") + ".\n\n")
	}
	golden.Equal(t, "../../docs/lab/operators.md", []byte(b.String()))
}

// public reports whether an exported model could call an operator.
func public(base, overload string) bool {
	if strings.HasPrefix(base, "_") || strings.Contains(overload, "out") || strings.Contains(overload, "name") {
		return false
	}
	for _, part := range []string{
		"backward", "sparse", "quantize", "mkldnn", "miopen", "cudnn", "fbgemm", "q_",
		"qparams", "_jvp", "nested", "values", "crow", "ccol", "_copy",
	} {
		if strings.Contains(base, part) {
			return false
		}
	}
	return true
}
