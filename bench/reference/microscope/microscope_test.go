package microscope_test

import (
	"compress/bzip2"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference/eventlist"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/sample"
)

var (
	update = flag.Bool("update", false, "rewrite golden files")
	only   = flag.String("lists", "", "look at the lists whose name contains this")
	show   = flag.Int("show", 5, "print this many differences of each list")
)

// listName is CASE-bBATCH-AMP-CHECKPOINTING-STAGE-GPU.
var listName = regexp.MustCompile(`^(.+)-b(\d+)-(none|fp16|bf16)-(plain|ckpt)-([a-z0-9]+)-(rtx-5060-ti)$`)

func caseOf(t *testing.T, name string) (models.Case, device.GPU) {
	m := listName.FindStringSubmatch(name)
	require.NotNil(t, m, name)
	batch, err := strconv.Atoi(m[2])
	require.NoError(t, err)
	amp, err := models.ParseAutocast(m[3])
	require.NoError(t, err)
	c := models.Case{Model: m[1], Batch: batch, AMP: amp, Checkpointing: m[4] == "ckpt", Stage: m[5]}
	if c.Stage == "default" {
		c.Stage = ""
	}
	gpu, err := device.Lookup(m[6])
	require.NoError(t, err)
	return c, gpu
}

func recorderGPU(g device.GPU) trace.GPU {
	return trace.GPU{
		Name: g.Name, Capability: int(g.Capability), SMs: g.SMs, ThreadsPerSM: g.ThreadsPerSM,
		Memory: g.Memory,
	}
}

func readList(t *testing.T, path string) []event {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	events, err := readEvents(bzip2.NewReader(f))
	require.NoError(t, err)
	return events
}

func ours(t *testing.T, p *program.Program) []event {
	var b strings.Builder
	require.NoError(t, eventlist.Write(&b, p))
	events, err := readEvents(strings.NewReader(b.String()))
	require.NoError(t, err)
	return events
}

// oldest is the release whose lists lie in testdata itself; the lists of others have a folder each.
const oldest = "2.11"

func releaseOf(path string) string {
	if folder := filepath.Base(filepath.Dir(path)); folder != "testdata" {
		return folder
	}
	return oldest
}

// TestRecordedStepsAreThoseOfPyTorch compares every recorded list of real PyTorch with what the recorder makes of the
// same case. A list of a model that is not there yet shows as such in the table.
func TestRecordedStepsAreThoseOfPyTorch(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt.bz2")
	require.NoError(t, err)
	later, err := filepath.Glob("testdata/2.*/*.txt.bz2")
	require.NoError(t, err)
	paths = append(paths, later...)
	require.NotEmpty(t, paths)
	registry := all.Models()
	var table strings.Builder
	for _, path := range sample.Of(paths) {
		name := strings.TrimSuffix(filepath.Base(path), ".txt.bz2")
		if !strings.Contains(name, *only) {
			continue
		}
		c, gpu := caseOf(t, name)
		c.Torch = releaseOf(path)
		if _, err := registry.Lookup(c.Model); err != nil {
			fmt.Fprintf(&table, "%-60s no such model yet\n", name)
			continue
		}
		r, err := registry.Record(c, recorderGPU(gpu), models.Options{})
		require.NoError(t, err, name)
		require.NoError(t, r.Program.Validate(), name)
		result, err := Compare(readList(t, path), ours(t, r.Program))
		require.NoError(t, err, name)
		var report strings.Builder
		result.Print(&report, *show)
		t.Logf("%s\n%s", name, report.String())
		if c.Torch != oldest {
			name = c.Torch + " " + name
		}
		addRow(&table, 60, name, result)
	}
	if *only != "" || !sample.All() {
		return
	}
	requireTable(t, "testdata/microscope.golden", table.String())
}

// addRow adds a comparison to a table whose first column has this many characters.
func addRow(table *strings.Builder, width int, name string, c *Comparison) {
	fmt.Fprintf(table, "%-*s allocations %6.2f %%  events %6.2f %%  peak %+.3f %%\n", width, name,
		100*c.Allocations.Share(), 100*c.Events.Share(), 100*(float64(c.PeakOurs)/float64(c.PeakReference)-1))
}

// requireTable compares a table with the golden file, or rewrites that with -update.
func requireTable(t *testing.T, golden, table string) {
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(table), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), table, "the table changed; run with -update if that is right")
}
