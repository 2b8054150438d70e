package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/toy"
)

// desk returns an app with the toy model, whose streams are buffers.
func desk() (a *app, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &app{
		stdin: strings.NewReader(""), stdout: stdout, stderr: stderr,
		now:       func() time.Time { return time.Unix(1793858400, 0) },
		models:    func() *models.Registry { return models.NewRegistry([]models.Model{toy.Model()}) },
		residuals: func(planner.ResidualSubject) (allocated, reserved planner.Residual, err error) { return },
		openGPU:   openGPU, deviceFolder: "/dev/null",
	}, stdout, stderr
}

func TestEveryKindOfErrorHasItsExitCode(t *testing.T) {
	for want, errs := range map[exitCode][]error{
		exitFine:        {nil},
		exitFailure:     {errors.New("disk full"), io.ErrShortWrite},
		exitInterrupted: {context.Canceled, errors.Join(context.Canceled, errors.New("disk full"))},
		exitNegative:    {negativeVerdict{errors.New("does not fit")}},
		exitNoGPU:       {noGPUError{"no driver", simulateHint}},
		exitUsage: {
			usagef("no"), &models.UnknownModelError{}, &device.UnknownGPUError{}, &models.CaseError{},
			&step.RefusedError{Err: errors.New("batch norm")}, input.Errorf("no such key"),
			errors.Join(errors.New("other"), &input.FormatError{}),
		},
	} {
		for _, err := range errs {
			require.Equal(t, want, codeOf(err), "%v", err)
		}
	}
}

// A script that names an option by a variable that is not set must not go on without it.
func TestNoOptionTakesNothing(t *testing.T) {
	checked := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); kind != "string" && !strings.HasPrefix(kind, "string") {
				return
			}
			for _, nothing := range []string{"", " "} {
				a, _, _ := desk()
				args := slices.Concat(strings.Fields(cmd.CommandPath())[1:], []string{"--" + f.Name + "=" + nothing})
				require.Equal(t, exitUsage, run(t.Context(), a, args), "%v", args)
				checked++
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	a, _, _ := desk()
	walk(newRootCmd(a))
	require.Greater(t, checked, 300)
}

func TestJSONOfCommandsFollowsItsSchema(t *testing.T) {
	sample.Alone(t)
	for _, c := range []struct {
		schema string
		args   []string
	}{
		{"report", []string{"sweep", "--model", "toy", "--gpu-memory", "1GiB", "--batch", "8..128x2"}},
		{"report", []string{"plan", "--model", "toy", "--gpu", "t4,h100", "--batch", "8,16"}},
		{"accuracy", []string{"accuracy", "-"}},
		{"smoke", []string{"smoke", "--model", "toy"}},
		{"fit", []string{"fit", "--model", "toy", "--gpu", "t4,h100", "--tune", "seq-len=1..4x2"}},
	} {
		a, stdout, stderr := desk()
		a.stdin = strings.NewReader(`{"schema":"vprof.reference/v1"}
{"case":"toy","stage":"full","batch":8,"amp":"fp16","checkpointing":false,"accumulate":1,"gpu":"t4","status":"ok","peak_allocated":1,"peak_reserved":1,"phases":[[0,"forward",1,1,1,1]]}
{"case":"chair","stage":"full","batch":8,"amp":null,"checkpointing":false,"accumulate":1,"gpu":"t4","status":"ok","peak_allocated":1,"peak_reserved":1,"phases":[[0,"forward",1,1,1,1]]}`)
		require.Equal(t, exitFine, run(t.Context(), a, append(c.args, "--format", "json")), stderr)
		text, ok := report.JSONSchema(c.schema)
		require.True(t, ok)
		var parsed jsonschema.Schema
		require.NoError(t, json.Unmarshal(text, &parsed))
		schema, err := parsed.Resolve(nil)
		require.NoError(t, err)
		var document any
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &document))
		require.NoError(t, schema.Validate(document), "%v", c.args)
	}
}

// The same command gives the same bytes, whatever the order of maps.
func TestOutputIsDeterministic(t *testing.T) {
	for _, format := range report.Formats() {
		var first string
		for i := range 5 {
			a, stdout, _ := desk()
			require.Equal(t, exitFine, run(t.Context(), a,
				[]string{"plan", "--model", "toy", "--gpu", "t4,h100", "--batch", "8..64x2", "--format", format}))
			if i == 0 {
				first = stdout.String()
			}
			require.Equal(t, first, stdout.String(), format)
		}
	}
}

func TestInterruptedSweepPrintsWhatItHasAndExits130(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a, stdout, stderr := desk()
	toys := a.models()
	a.models = func() *models.Registry {
		m, err := toys.Lookup("toy")
		require.NoError(t, err)
		build := m.Build
		m.Build = func(c models.Case) (models.Trainer, error) {
			if c.Batch == 16 { // not among the six that are replayed before the sweep
				cancel()
			}
			return build(c)
		}
		return models.NewRegistry([]models.Model{m})
	}
	code := run(ctx, a, []string{"sweep", "--model", "toy", "--batch", "8..4096x2", "--gpu", "h200", "--format", "csv"})
	require.Equal(t, exitInterrupted, code)
	require.Equal(t, "vprof: interrupted\n", stderr.String())
	require.Contains(t, stdout.String(), ",8,sim:h200,")
	require.NotContains(t, stdout.String(), ",16,sim:h200,")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestUnwritableOutputIsAFailure(t *testing.T) {
	for _, args := range [][]string{
		{"gpus"},
		{"models"},
		{"version"},
		{"schema"},
		{"plan", "--model", "toy"},
		{"sweep", "--model", "toy"},
		{"fit", "--model", "toy"},
		{"events", "--model", "toy"},
	} {
		a, _, stderr := desk()
		a.stdout = full{}
		require.Equal(t, exitFailure, run(t.Context(), a, args), args)
		require.Contains(t, stderr.String(), "disk full", args)
	}
}

func TestBugsShowALineAndNoTrace(t *testing.T) {
	a, stdout, stderr := desk()
	a.models = func() *models.Registry { panic("off by one") }
	require.Equal(t, exitFailure, run(t.Context(), a, []string{"models"}))
	require.Empty(t, stdout.String())
	require.Contains(t, stderr.String(), "vprof: this is a bug of vprof: off by one; please report it")
	require.Equal(t, 1, strings.Count(stderr.String(), "\n"))

	t.Setenv("VPROF_DEBUG", "1")
	require.Panics(t, func() { run(t.Context(), a, []string{"models"}) })
}
