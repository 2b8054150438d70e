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

// Whatever the work and its precision: every byte that an op writes is written.
// An update has more operands than a kernel takes.
func TestEveryByteOfAnOpIsWritten(t *testing.T) {
	setup := small(t)
	setup.Backed = true
	driver := setup.Restart(t)
	d := open(t)
	addr, err := d.Get(64 * mib)
	require.NoError(t, err)
	p, err := d.Patterns()
	require.NoError(t, err)
	next := addr
	take := func(n int64) device.Range {
		r := device.Range{Addr: next, Bytes: n}
		next += uint64(n+511) &^ 511
		return r
	}
	for work := program.Elementwise; work <= program.OptimizerUpdate; work++ {
		for _, precision := range []program.Precision{
			program.FP32, program.FP16, program.BF16, program.TF32,
			program.FP64,
		} {
			k := device.Kernel{Work: work, Precision: precision, FLOPs: 30_000, M: 16, N: 24, K: 32, Batch: 2}
			operands := int64(2)
			if work == program.OptimizerUpdate {
				operands = 10
			}
			for i := range operands {
				k.Reads = append(k.Reads, take(4000+i))
				k.Writes = append(k.Writes, take(3000*i+1))
			}
			for _, w := range k.Writes {
				require.NoError(t, p.Write(w, 1))
			}
			require.NoError(t, d.Launch(k), "%v in %v", work, precision)
			for _, w := range k.Writes {
				var wrong *device.PatternError
				require.ErrorAs(t, p.Verify(w, 1), &wrong, "%v in %v: %d bytes", work, precision, w.Bytes)
				require.GreaterOrEqual(t, wrong.Bytes, w.Bytes-16, "%v in %v: %d bytes", work, precision, w.Bytes)
			}
		}
	}
	require.NoError(t, p.Close())
	require.NoError(t, d.Close())
	requireClean(t, driver)
}
