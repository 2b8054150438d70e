package script_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/profiler/device"
)

// tune is a command that tunes kernels by their names, and prints which of them it finds tuned.
const tune = `cd "$TORCHINDUCTOR_CACHE_DIR" 2>/dev/null || mkdir "$TORCHINDUCTOR_CACHE_DIR" && cd "$TORCHINDUCTOR_CACHE_DIR"
for kernel in "$@"; do
	test -f k/$kernel.best_config && echo $kernel
	mkdir -p k && echo tuned > k/$kernel.best_config
done
true`

// tuning runs a command that tunes some things, and returns what it finds tuned.
func tuning(t *testing.T, c script.Command, command string, things ...string) string {
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	var out bytes.Buffer
	c.Args, c.GPU, c.Stdout, c.Stderr = append([]string{"sh", "-c", command, "tune"}, things...), gpu, &out, &out
	_, err = script.Run(t.Context(), c)
	require.NoError(t, err)
	return strings.Join(strings.Fields(out.String()), " ")
}

// All products of matrices are in one file, to which each command adds.
func TestCommandsFindWhichProductsArePadded(t *testing.T) {
	const pad = `mkdir -p "$TORCHINDUCTOR_CACHE_DIR/cache" && cd "$TORCHINDUCTOR_CACHE_DIR/cache"
cat system 2>/dev/null
for product in "$@"; do echo $product >> system; done`
	keeping := script.Command{Tunings: filepath.Join(t.TempDir(), "tuned", "t4.jsonl")}
	for range 2 {
		require.Empty(t, tuning(t, keeping, pad, "a"))
		require.Equal(t, "a", tuning(t, keeping, pad, "b", "c"))
	}
	require.Equal(t, "a b c", tuning(t, keeping, pad, "d"), "although the first ran again")
}

func TestCommandsFindTunedWhatOthersTunedBefore(t *testing.T) {
	tunings := filepath.Join(t.TempDir(), "tuned", "t4.jsonl")
	found := func(c script.Command, kernels ...string) string { return tuning(t, c, tune, kernels...) }
	keeping := script.Command{Tunings: tunings}
	for range 2 { // again, the same
		require.Empty(t, found(keeping, "a", "b"))
		require.Equal(t, "b", found(keeping, "b", "c"), "of the command before")
		require.Equal(t, "a c", found(keeping, "a", "c", "d"), "of both")
	}
	require.Empty(t, found(script.Command{}, "b", "c"), "where nothing is kept")
	folder := script.Command{Tunings: tunings, InductorCache: t.TempDir()}
	require.Empty(t, found(folder, "a", "b", "x"), "of a folder only what is there")
	require.Empty(t, found(keeping, "x"), "nor is that kept elsewhere")
	ranks := script.Command{Tunings: tunings, GPUs: 2}
	require.Equal(t, "a", found(ranks, "a", "y"))
	ranks.Rank = 1
	require.Equal(t, "a", found(ranks, "a", "y"), "ranks tune at the same time")

	broken := "{\"command\": 1}\n{\"command\":\"\",\"tuned\":{\"../z.best_config\":\"\"}}\n{"
	require.NoError(t, os.WriteFile(tunings, []byte(broken), 0o600))
	require.Empty(t, found(keeping, "a", "b"), "lines that are none are passed over")
	require.NoError(t, os.WriteFile(tunings, bytes.Repeat([]byte("\n"), 9<<20), 0o600))
	require.Empty(t, found(keeping, "b", "c"))
	kept, err := os.Stat(tunings)
	require.NoError(t, err)
	require.Less(t, kept.Size(), int64(1000), "what has become too large begins anew")
}
