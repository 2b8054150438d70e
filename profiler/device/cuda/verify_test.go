//go:build cuda && linux && cgo

package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// The kernels really run here, on the CPU: a pattern is found again, another
// seed's is not, and a single byte that was overwritten is noticed.
func TestPatternsAreFoundAgain(t *testing.T) {
	setup := small(t)
	setup.Backed = true
	driver := setup.Restart(t)
	d := open(t)
	addr, err := d.Get(2 * mib)
	require.NoError(t, err)
	p, err := d.Patterns()
	require.NoError(t, err)
	for _, n := range []int64{1, 15, 16, 17, 1000, 70_001} {
		r := device.Range{Addr: addr, Bytes: n}
		require.NoError(t, p.Write(r, 42))
		require.NoError(t, p.Verify(r, 42))

		var wrong *device.PatternError
		require.ErrorAs(t, p.Verify(r, 43), &wrong)
		require.Equal(t, r, wrong.Range)

		// Both values of the byte cannot be the pattern's.
		first, second := d.Fill(addr+uint64(n)-1, 0, 1), error(nil)
		require.NoError(t, first)
		if second = p.Verify(r, 42); second == nil {
			require.NoError(t, d.Fill(addr+uint64(n)-1, 255, 1))
			second = p.Verify(r, 42)
		}
		require.ErrorAs(t, second, &wrong)
		require.Equal(t, (n-1)/16*16, wrong.Offset)
		require.Equal(t, min(16, n), wrong.Bytes)
	}
	require.NoError(t, p.Close())
	require.NoError(t, d.Close())
	requireClean(t, driver)
}

// An elementwise op over ten inputs, more than a kernel takes, reads all and
// writes all: outputs that held a pattern do not any more.
func TestEveryByteOfAnOpIsWritten(t *testing.T) {
	setup := small(t)
	setup.Backed = true
	driver := setup.Restart(t)
	d := open(t)
	addr, err := d.Get(8 * mib)
	require.NoError(t, err)
	p, err := d.Patterns()
	require.NoError(t, err)
	next := addr
	take := func(n int64) device.Range {
		r := device.Range{Addr: next, Bytes: n}
		next += uint64(n+511) &^ 511
		return r
	}
	for _, precision := range []program.Precision{program.FP32, program.FP16, program.BF16, program.TF32, program.FP64} {
		k := device.Kernel{Work: program.Elementwise, Precision: precision, FLOPs: 30_000}
		for i := range int64(10) {
			k.Reads = append(k.Reads, take(1000+i))
			k.Writes = append(k.Writes, take(500*i+1))
		}
		for _, w := range k.Writes {
			require.NoError(t, p.Write(w, 1))
		}
		require.NoError(t, d.Launch(k))
		for _, w := range k.Writes {
			var wrong *device.PatternError
			require.ErrorAs(t, p.Verify(w, 1), &wrong)
			require.GreaterOrEqual(t, wrong.Bytes, w.Bytes-16)
		}
	}
	require.NoError(t, d.Close())
	requireClean(t, driver)
}
