package accuracy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/accuracy"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/models/all"
)

// Steps of vprof's own systems that an H100 ran. Those of transformers are of another release than vprof describes.
func TestStepsOfAnH100(t *testing.T) {
	f, err := reference.Open("../../reference/data/h100/steps.jsonl")
	require.NoError(t, err)
	records := slices.DeleteFunc(f.Records, func(r reference.Record) bool {
		return !slices.ContainsFunc([]string{"redimnet", "patch-vqvae", "spectrogram-gan", "bdslw-spoter", "vit-b16"},
			func(system string) bool { return strings.HasPrefix(r.Model, system) })
	})
	require.Len(t, records, 46)
	a, err := accuracy.Compare(t.Context(), records, accuracy.Recorder{Models: all.Models()}, nil)
	require.NoError(t, err)
	require.Zero(t, a.Summary.Allocated.Median)
	require.Zero(t, a.Summary.Reserved.Median)
	require.LessOrEqual(t, a.Summary.Allocated.P95, 0.03)
	require.LessOrEqual(t, a.Summary.Reserved.P95, 0.03)
	require.Zero(t, a.Summary.OOM.Wrong)
}

// What docs/gpu.md says of scripts on an H100 and under vprof run is what the file has.
func TestRunsOfAnH100AreAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../reference/data/h100/runs.jsonl")
	require.NoError(t, err)
	var off [2][]float64
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var r struct {
			Command            string
			Allocated          int64 `json:"peak_allocated"`
			Reserved           int64 `json:"peak_reserved"`
			SimulatedAllocated int64 `json:"simulated_allocated"`
			SimulatedReserved  int64 `json:"simulated_reserved"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r), "line %d", i+1)
		if i == 0 {
			continue // what measured it
		}
		require.NotEmpty(t, r.Command, "line %d", i+1)
		off[0] = append(off[0], 100*math.Abs(float64(r.SimulatedAllocated)/float64(r.Allocated)-1))
		off[1] = append(off[1], 100*math.Abs(float64(r.SimulatedReserved)/float64(r.Reserved)-1))
	}
	n := len(off[0])
	var equal [2]int
	for i := range off {
		slices.Sort(off[i])
		equal[i], _ = slices.BinarySearch(off[i], math.SmallestNonzeroFloat64)
	}
	at := func(i int, share float64) float64 { return off[i][int(share*float64(n))] }
	row := fmt.Sprintf("cuDNN and transformers | %d | %d, %d | %.2f %%, %.2f %% | %.1f %%, %.1f %% | %.0f %%, %.0f %% |",
		n, equal[0], equal[1], at(0, .5), at(1, .5), at(0, .95), at(1, .95), off[0][n-1], off[1][n-1])
	page, err := os.ReadFile("../../../docs/gpu.md")
	require.NoError(t, err)
	require.Contains(t, string(page), row)
}
