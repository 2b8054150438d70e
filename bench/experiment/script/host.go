package script

import (
	"bytes"
	"context"
	_ "embed" // the script
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/input"
)

//go:embed host.py
var hostScript string

// HostSteps trains ResNet-50 with the given Python on the command's GPU and stubs, to measure the host's speed. It
// returns the release of PyTorch and the processor seconds of ten steps without recording, ascending. The error means
// bad input if the Python or its PyTorch cannot run the training.
func HostSteps(ctx context.Context, c Command, python string) (torch string, seconds []float64, err error) {
	if _, err := exec.LookPath(python); err != nil {
		return "", nil, input.Errorf("there is no Python interpreter %s; name yours with --python, like --python "+
			"venv/bin/python", python)
	}
	var printed bytes.Buffer
	c.Args, c.Stdout, c.Steps, c.Timed = []string{python, "-c", hostScript}, &printed, 3, true
	o, err := Run(ctx, c)
	if err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(printed.String()) {
		if s, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil && s > 0 {
			seconds = append(seconds, s)
		}
	}
	if o.Kind() != Fits || len(seconds) < leastTimed {
		return "", nil, input.Errorf("%s cannot train on the simulated GPU (%s); name a Python that has PyTorch for "+
			"CUDA 12 or 13 with --python", python, strings.TrimSuffix(
			fmt.Sprintf("%s, %s", resultNames[o.Kind()], o.StderrTail), ", "))
	}
	seconds = seconds[len(seconds)-leastTimed:]
	slices.Sort(seconds)
	return o.Torch().Version, seconds, nil
}
