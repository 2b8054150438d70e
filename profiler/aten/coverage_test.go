package aten

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vprof/vprof/internal/golden"
)

const coverageIntro = `# Operators

Which of PyTorch's operators vprof knows: what each allocates, keeps for backward and
frees, in eager PyTorch 2.11. Exported models (` + "`--model FILE.pt2`" + `) may call any of them;
one that is missing is named with its module and line. The table is profiler/aten, and a
test rewrites this page (` + "`make golden`" + `).

One thing is left out: the workspaces of cuSOLVER, which factorizes matrices for cholesky, qr,
eigh and svd, and for lu, inv, solve and det where matrices are alone or have 512 rows and more.
Their sizes are not published; they live for one call.

`

// TestCoveragePageIsCurrent writes docs/lab/operators.md: which of PyTorch's operators are in the table.
func TestCoveragePageIsCurrent(t *testing.T) {
	schemas := published(t)
	calls := map[string]int{}
	for _, c := range loadCalls(t, "testdata/calls.jsonl.gz") {
		calls[strings.TrimSuffix(nameOf(c.Target), ".default")]++
	}
	overloads := map[string][]string{}
	unknown := map[string]bool{}
	recorded, rows := 0, 0
	for name := range schemas {
		base, overload, _ := strings.Cut(strings.TrimPrefix(name, "aten::"), ".")
		if index()[name] != nil {
			overloads[base] = append(overloads[base], overload)
			rows++
			if calls[name] > 0 {
				recorded++
			}
		} else if public(base, overload) {
			unknown[base] = true
		}
	}
	maps.DeleteFunc(unknown, func(base string, _ bool) bool { return overloads[base] != nil })
	var b strings.Builder
	b.WriteString(coverageIntro)
	fmt.Fprintf(&b, "The table has %d operators of %d names. Calls of %d of them are recorded with PyTorch itself\n",
		rows, len(overloads), recorded)
	b.WriteString("(profiler/aten/testdata), others through docs/lab/conformance.md.\n\n## Known\n\nWith the overloads, " +
		"where there is more than the default one:\n\n")
	for _, base := range slices.Sorted(maps.Keys(overloads)) {
		slices.Sort(overloads[base])
		fmt.Fprintf(&b, "- %s", base)
		if list := strings.Trim(strings.Join(overloads[base], ", "), ", "); list != "" {
			if overloads[base][0] == "" {
				list = "default, " + list
			}
			fmt.Fprintf(&b, " (%s)", list)
		}
		b.WriteByte('\n')
	}
	b.WriteString("\n## Not known\n\nOf those a model could call; internal ones, quantized and sparse kernels and " +
		"out= forms are left out.\n\n")
	b.WriteString(strings.Join(slices.Sorted(maps.Keys(unknown)), ", ") + "\n")
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
