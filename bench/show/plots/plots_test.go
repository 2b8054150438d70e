package plots_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/plots"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/toy"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

const memory = 1 << 30

// drawn returns all kinds of plots of the toy's plan.
func drawn(t *testing.T) map[string]*plot.Plot {
	m := toy.Model()
	setup, err := step.New(m, m.Default,
		step.Evidence{Residuals: func(planner.Subject) (allocated, reserved planner.Residual, err error) {
			return
		}})
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(t, err)
	gpu.Memory = memory
	r, err := sweep.Plan(t.Context(), setup, gpu, []int{8, 16, 64})
	require.NoError(t, err)
	step, err := setup.Profile(t.Context(), gpu, 16)
	require.NoError(t, err)
	all := map[string]*plot.Plot{}
	for name, made := range map[string]func() (*plot.Plot, error){
		"batch":     func() (*plot.Plot, error) { return plots.Batch(r) },
		"breakdown": func() (*plot.Plot, error) { return plots.Breakdown(r) },
		"timeline":  func() (*plot.Plot, error) { return plots.Timeline(step) },
	} {
		all[name], err = made()
		require.NoError(t, err, name)
	}
	return all
}

func TestEveryKindIsAWholePictureInBothFormats(t *testing.T) {
	for name, p := range drawn(t) {
		var svg, picture bytes.Buffer
		p.Title.Text += "\x1b[31m" // of a file, which XML forbids
		require.NoError(t, plots.Write(&svg, p, "svg"), name)
		require.Contains(t, svg.String(), "toy, stage full, fp32", name)
		for d := xml.NewDecoder(&svg); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err, name)
			}
		}
		require.NoError(t, plots.Write(&picture, p, "png"), name)
		image, err := png.Decode(&picture)
		require.NoError(t, err)
		require.Greater(t, image.Bounds().Dx(), image.Bounds().Dy())
	}
	require.ErrorContains(t, plots.Write(io.Discard, plot.New(), "gif"), `no format "gif"`)
}

// Axes begin at nothing, and nothing is cut off: batch 64 needs 1.22 GiB
// reserved and 1.40 of the device.
func TestAxesHoldEverything(t *testing.T) {
	all := drawn(t)
	for name, p := range all {
		require.Zero(t, p.Y.Min, name)
	}
	require.Greater(t, all["batch"].Y.Max, 1.22)
	require.Greater(t, all["batch"].X.Max, 64.0)
	require.Greater(t, all["breakdown"].Y.Max, 1.40)
	// 304 MiB at batch 16.
	require.Greater(t, all["timeline"].Y.Max, 304.0/1024)
}

func TestRunsWithoutPointsCannotBeDrawn(t *testing.T) {
	r := &report.Report{Case: report.Case{Case: models.Case{Model: "toy"}}}
	_, err := plots.Batch(r)
	require.ErrorContains(t, err, "no batch size")
	_, err = plots.Breakdown(r)
	require.ErrorContains(t, err, "no components")
}

// A plan for two GPUs has a curve, and bars, for each.
func TestGPUsStandApart(t *testing.T) {
	m := toy.Model()
	setup, err := step.New(m, m.Default,
		step.Evidence{Residuals: func(planner.Subject) (allocated, reserved planner.Residual, err error) {
			return
		}})
	require.NoError(t, err)
	var gpus []*report.Report
	for _, name := range []string{"t4", "rtx-5060-ti"} {
		gpu, err := device.Lookup(name)
		require.NoError(t, err)
		r, err := sweep.Plan(t.Context(), setup, gpu, []int{8, 16})
		require.NoError(t, err)
		gpus = append(gpus, r)
	}
	r, err := report.Merge(gpus...)
	require.NoError(t, err)
	for want, draw := range map[string]func(*report.Report) (*plot.Plot, error){
		"estimate, with its interval, Tesla T4": plots.Batch,
		"sim:rtx-5060-ti":                       plots.Breakdown,
	} {
		p, err := draw(r)
		require.NoError(t, err)
		var svg bytes.Buffer
		require.NoError(t, plots.Write(&svg, p, "svg"))
		require.Contains(t, svg.String(), want)
	}
}
