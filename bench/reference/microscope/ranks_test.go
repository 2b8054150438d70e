package microscope_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/sample"
)

// rankList is the name of an event list of a rank: model, strategy, option, world, batch.
var rankList = regexp.MustCompile(`^((\w+)-[\w-]+?)-(ddp|fsdp2|zero1|tp|pp)-(\S+?)-w(\d+)-b(\d+)-none-adamw$`)

// TestRanksRunAsInPyTorch compares recorded steps of one rank of several with what PyTorch allocated there.
func TestRanksRunAsInPyTorch(t *testing.T) {
	paths, err := filepath.Glob("testdata/ranks/*.txt.bz2")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var table strings.Builder
	var shares []float64
	for _, path := range sample.Of(paths) {
		name := strings.TrimSuffix(filepath.Base(path), ".txt.bz2")
		c := rankCase(t, name)
		model, err := all.Models().Lookup(c.Model)
		require.NoError(t, err)
		gpu, err := device.Lookup("a100-80")
		require.NoError(t, err)
		r, err := model.Record(c, recorderGPU(gpu), models.Options{})
		require.NoError(t, err, name)
		require.NoError(t, r.Program.Validate(), name)
		result, err := Compare(readList(t, path), steps(ours(t, r.Program), "model", "wrap", "batch"))
		require.NoError(t, err, name)
		shares = append(shares, result.Allocations.Share())
		addRow(&table, 56, name, result)
		if testing.Verbose() {
			result.Print(os.Stdout, 8)
		}
	}
	slices.Sort(shares)
	require.GreaterOrEqual(t, shares[0], 0.97)
	if !sample.All() {
		return
	}
	requireTable(t, "testdata/ranks.golden", table.String())
}

// rankCase returns the case that a list is of.
func rankCase(t *testing.T, name string) models.Case {
	m := rankList.FindStringSubmatch(name)
	require.NotNil(t, m, name)
	options := "rank=0"
	if m[4] != "default" {
		options += "," + m[4]
	}
	if m[3] == models.DDP || m[3] == models.ZeRO1 {
		options += ",bucket_cap_mb=25"
	}
	if m[3] == models.FSDP2 || m[3] == models.TP {
		options += ",init=device" // as the script that made the lists
	}
	s, err := models.ParseStrategy(m[3] + ":" + options)
	require.NoError(t, err, name)
	c := models.Case{Model: "../../../models/pt2/testdata/" + m[1] + ".pt2", Accumulate: 1, Strategy: &s}
	c.Batch, err = strconv.Atoi(m[6])
	require.NoError(t, err)
	c.GPUs, err = strconv.Atoi(m[5])
	require.NoError(t, err)
	c.Loss = map[string]string{"hf": "output", "own": "token-cross-entropy"}[m[2]]
	return c
}
