package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A verdict is the outcome of a check.
type verdict string

// The verdicts, the most severe last. defect: the GPU computes or stores wrong values. A step that could not run may
// have any reason and tells nothing about the GPU. slow: the GPU is below its expected speed.
const (
	healthy     verdict = "healthy"
	slow        verdict = "slow"
	couldNotRun verdict = "could not run"
	defect      verdict = "defect"
)

// exit returns the exit code of a verdict.
func (v verdict) exit() int {
	return map[verdict]int{healthy: 0, slow: 5, couldNotRun: 1, defect: 3}[v]
}

// A verdictError reports a fault of the GPU or of the check.
type verdictError struct {
	verdict verdict
	wrong   []string
}

func (e *verdictError) Error() string { return string(e.verdict) + ": " + strings.Join(e.wrong, "; ") }

// defects match messages of commands about wrong results or faulty memory of the GPU.
var defects = []string{
	"the GPU gives wrong results", "do not hold what was written", "CUDA_ERROR_ECC_UNCORRECTABLE",
	"CUDA_ERROR_HARDWARE_STACK_ERROR",
	"CUDA_ERROR_NVLINK_UNCORRECTABLE",
}

// negative is the exit code of a step that ran and found that a configuration does not fit.
const negative = 3

// classify sets the step's verdict from the output of a failure.
func (s *step) classify(output string) {
	if s.Exit == 0 || s.Exit == negative {
		return
	}
	s.Verdict = couldNotRun
	if slices.ContainsFunc(defects, func(d string) bool { return strings.Contains(output, d) }) {
		s.Verdict = defect
	}
}

// lastLine returns the last nonempty line of a text.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// gpuErrors are errors that the driver has counted: uncorrected memory errors, and Xids in the kernel log.
type gpuErrors struct {
	uncorrected int
	xids        []string
}

// errorsOfGPU reads the errors of the GPU with a UUID from nvidia-smi, whose index may differ from CUDA's, and from
// dmesg. Values that these do not report are missing, as for a MIG instance.
func errorsOfGPU(ctx context.Context, uuid string) gpuErrors {
	var e gpuErrors
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=ecc.errors.uncorrected.volatile.total",
		"--format=csv,noheader", "--id="+uuid).Output()
	if err == nil {
		e.uncorrected, _ = strconv.Atoi(strings.TrimSpace(string(out))) // "[N/A]" without ECC
	}
	if out, err = exec.CommandContext(ctx, "dmesg").Output(); err == nil {
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "NVRM: Xid") {
				e.xids = append(e.xids, strings.TrimSpace(line))
			}
		}
	}
	return e
}

// since returns the errors that were added after an earlier reading.
func (e gpuErrors) since(before gpuErrors) []string {
	var found []string
	if n := e.uncorrected - before.uncorrected; n > 0 {
		found = append(found, fmt.Sprintf("%d uncorrected memory errors while it ran", n))
	}
	for _, line := range e.xids[min(len(before.xids), len(e.xids)):] {
		found = append(found, "the kernel log: "+line)
	}
	return found
}
