package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/tools/sample"
)

const data = "../../bench/reference/data"

// Errors of the table on vprof's own measurements, and how many steps lie within its intervals.
func TestTheTableIsAsGoodAsTheDocumentsSay(t *testing.T) {
	sample.Whole(t)
	kernels, err := readKernels(filepath.Join(data, "times", "kernels.csv.gz"))
	require.NoError(t, err)
	steps := records(data, "h100/steps.jsonl", "h100/largest.jsonl")
	others := stepRows(filepath.Join(data, "times", "steps.jsonl"))
	images := stepRows(filepath.Join(data, "times", "timm.jsonl"))
	require.Len(t, steps, 24)
	require.Len(t, others, 108) // 42 of them are used for evaluation only
	require.Len(t, images, 34)
	k := steptime.DefaultKernels()
	for _, c := range []struct {
		name string
		rows []measurement
		most float64 // mean error of families
	}{{"kernels", kernels, 0.13}, {"H100", steps, 0.08}, {"others", others, 0.06}, {"timm", images, 0.065}} {
		require.Less(t, loss(c.rows, k), c.most, c.name)
	}
	inside := 0
	for _, m := range slices.Concat(steps, others, images) {
		if m.inside(k) {
			inside++
		}
	}
	require.GreaterOrEqual(t, inside, 154, "of 166")
	text, err := os.ReadFile("../../profiler/planner/steptime/kernels.csv")
	require.NoError(t, err)
	require.Equal(t, string(text), refit(string(text), kernels, slices.Concat(steps, others, images)))
}

// A fit to kernels that take twice as long gives about half the utilization.
func TestAFitFollowsTheMeasurements(t *testing.T) {
	kernels, err := readKernels(filepath.Join(data, "times", "kernels.csv.gz"))
	require.NoError(t, err)
	var rows []measurement
	for _, m := range kernels {
		if m.program.Ops[0].ProductIndex == 0 && m.gpu.Name == "t4" {
			m.seconds *= 2
			rows = append(rows, m)
		}
	}
	text, err := os.ReadFile("../../profiler/planner/steptime/kernels.csv")
	require.NoError(t, err)
	before, err := steptime.ReadKernels(string(text))
	require.NoError(t, err)
	after, err := steptime.ReadKernels(fit(string(text), rows, "kernels", leastGain))
	require.NoError(t, err)
	require.Less(t, loss(rows, after), loss(rows, before)/2)
	require.InDelta(t, math.Log(2), rows[0].miss(before)*-1, 0.1)
}
