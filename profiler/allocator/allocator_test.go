package allocator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/allocator"
)

const mib = 1 << 20

func newHeap(tb testing.TB, total int64, conf string) *allocator.Allocator {
	tb.Helper()
	config, err := allocator.ParseConfig(conf)
	require.NoError(tb, err)
	heap, err := allocator.New(allocator.NewMemory(total, 0), config)
	require.NoError(tb, err)
	return heap
}

// heapTest drives an allocator with random operations, and an ideal heap with the same requests.
type heapTest struct {
	memory *allocator.SimulatedMemory
	heap   *allocator.Allocator
	ideal  allocator.Ideal
	blocks []*allocator.Block
	asked  map[*allocator.Block]int64
}

var configs = []string{
	"", "expandable_segments:True", "max_split_size_mb:20", "roundup_power2_divisions:[1:2,4:8,>:4]",
	"garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
	"large_segment_size_mb:12,max_non_split_rounding_mb:14,max_split_size_mb:12",
	"expandable_segments:True,roundup_power2_divisions:8",
	"expandable_segments:True,garbage_collection_threshold:0.3,per_process_memory_fraction:0.7",
}

func (h *heapTest) malloc(t *rapid.T) {
	n := rapid.OneOf(
		rapid.Int64Range(0, 4096), rapid.Int64Range(0, 2*mib), rapid.Int64Range(0, 60*mib),
		rapid.SampledFrom([]int64{512, mib, mib + 1, 10 * mib, 10*mib - 1, 19 * mib, 20 * mib}),
	).Draw(t, "bytes")
	stream := allocator.Stream(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "stream"))
	before := h.heap.Stats()
	b, err := h.heap.MallocOn(stream, n)
	if err != nil {
		var oom *allocator.OOMError
		require.ErrorAs(t, err, &oom)
		require.Equal(t, n, oom.Requested)
		require.Equal(t, before.NumOOMs+1, h.heap.Stats().NumOOMs)
		require.Equal(t, before.AllocatedBytes[allocator.AllPools].Current, h.heap.Allocated())
		return
	}
	require.Equal(t, n == 0, b == nil)
	require.GreaterOrEqual(t, b.Size(), n)
	if b != nil {
		h.blocks = append(h.blocks, b)
		h.asked[b] = n
		h.ideal.Malloc(n)
	}
}

func (h *heapTest) free(i int) {
	b := h.blocks[i]
	h.blocks[i] = h.blocks[len(h.blocks)-1]
	h.blocks = h.blocks[:len(h.blocks)-1]
	h.ideal.Free(h.asked[b])
	delete(h.asked, b)
	h.heap.Free(b)
}

// check compares the snapshot with the statistics and with what lies below.
func (h *heapTest) check(t *rapid.T) {
	stats := h.heap.Stats()
	var total, allocated, active, requested, split, end int64
	at := map[uint64]allocator.BlockInfo{}
	for _, s := range h.heap.Snapshot() {
		require.GreaterOrEqual(t, int64(s.Address), end, "segments overlap")
		end = int64(s.Address)
		for i, b := range s.Blocks {
			require.Equal(t, uint64(end), b.Address, "blocks do not tile the segment")
			require.Positive(t, b.Size)
			if i > 0 {
				require.False(t, b.State == allocator.Free && s.Blocks[i-1].State == allocator.Free,
					"free neighbors did not merge")
			}
			if b.State == allocator.Free && len(s.Blocks) > 1 && !s.Expandable {
				split += b.Size
			}
			end += b.Size
			at[b.Address] = b
		}
		require.Equal(t, int64(s.Address)+s.Size, end)
		total, allocated, active, requested = total+s.Size, allocated+s.Allocated, active+s.Active,
			requested+s.Requested
	}
	require.Equal(t, stats.ReservedBytes[allocator.AllPools].Current, total)
	require.Equal(t, stats.AllocatedBytes[allocator.AllPools].Current, allocated)
	require.Equal(t, stats.ActiveBytes[allocator.AllPools].Current, active)
	require.Equal(t, stats.RequestedBytes[allocator.AllPools].Current, requested)
	require.Equal(t, stats.InactiveSplitBytes[allocator.AllPools].Current, split)
	require.LessOrEqual(t, allocated, active)
	require.LessOrEqual(t, active, total)
	require.LessOrEqual(t, h.ideal.Live(), allocated)
	require.LessOrEqual(t, h.ideal.Peak(), stats.AllocatedBytes[allocator.AllPools].Peak)
	require.Equal(t, h.memory.Used(), total)
	for b, n := range h.asked {
		require.Equal(t, allocator.BlockInfo{
			Address: b.Addr(), Size: b.Size(), Requested: n,
			State: allocator.Allocated,
		}, at[b.Addr()])
	}
	for _, s := range []allocator.PoolStat{
		stats.AllocatedBytes, stats.ReservedBytes, stats.Allocation,
		stats.InactiveSplitBytes,
	} {
		require.Equal(t, s[allocator.AllPools].Current, s[allocator.SmallPool].Current+s[allocator.LargePool].Current)
	}
}

// TestHeapLaws: whatever happens, the blocks of a segment tile it, nothing overlaps, the statistics are the sums over
// the blocks, allocated <= active <= reserved, no heap is better than the ideal one, and when all is freed and the
// cache emptied the source has everything back.
func TestHeapLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config, err := allocator.ParseConfig(rapid.SampledFrom(configs).Draw(t, "config"))
		require.NoError(t, err)
		h := &heapTest{
			memory: allocator.NewMemory(rapid.Int64Range(30, 400).Draw(t, "MiB")*mib, 0),
			asked:  map[*allocator.Block]int64{},
		}
		h.heap, err = allocator.New(h.memory, config)
		require.NoError(t, err)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 19).Draw(t, "op"); {
			case op < 10:
				h.malloc(t)
			case op < 16 && len(h.blocks) > 0:
				h.free(rapid.IntRange(0, len(h.blocks)-1).Draw(t, "block"))
			case op == 16 && len(h.blocks) > 0:
				b := h.blocks[rapid.IntRange(0, len(h.blocks)-1).Draw(t, "block")]
				h.heap.RecordStream(b, allocator.Stream(rapid.IntRange(0, 2).Draw(t, "on")))
			case op == 17:
				h.heap.CompleteEvents()
			case op == 18:
				require.NoError(t, h.heap.EmptyCache())
			case op == 19:
				h.heap.ResetPeakStats()
				h.ideal.ResetPeak()
			}
			h.check(t)
		}
		for len(h.blocks) > 0 {
			h.free(0)
		}
		require.NoError(t, h.heap.EmptyCache())
		h.check(t)
		require.Zero(t, h.memory.Used())
		require.Empty(t, h.heap.Snapshot())
	})
}

func TestFreeTwicePanics(t *testing.T) {
	heap := newHeap(t, 1<<30, "")
	b, err := heap.Malloc(100)
	require.NoError(t, err)
	heap.Free(b)
	require.Panics(t, func() { heap.Free(b) })
	require.Panics(t, func() { _, _ = heap.Malloc(-1) })
}

func TestZeroBytesAreTheNilBlock(t *testing.T) {
	heap := newHeap(t, 1<<30, "")
	b, err := heap.Malloc(0)
	require.NoError(t, err)
	require.Zero(t, b.Addr())
	require.Zero(t, b.Size())
	heap.RecordStream(b, 1)
	heap.Free(b)
	require.Equal(t, allocator.Stats{}, heap.Stats())
}

// TestExabyteIsRefusedWithoutATry: PyTorch does not empty the cache for it.
func TestExabyteIsRefusedWithoutATry(t *testing.T) {
	heap := newHeap(t, 1<<30, "")
	_, err := heap.Malloc(1 << 60)
	require.ErrorContains(t, err, "out of memory")
	require.Equal(t, allocator.Stats{}, heap.Stats())
}

func TestOOMErrorSaysWhatWasThere(t *testing.T) {
	// 60 of 100 MiB are taken; 61 more do not fit.
	heap := newHeap(t, 100*mib, "")
	_, err := heap.Malloc(60 * mib)
	require.NoError(t, err)
	_, err = heap.Malloc(61*mib - 5)
	require.EqualError(t, err,
		"out of memory: tried to allocate 62.00 MiB for a request of 61.00 MiB; 60.00 MiB allocated, 60.00 MiB "+
			"reserved")
	require.Equal(t, &allocator.OOMError{
		Requested: 61*mib - 5, Segment: 62 * mib, Allocated: 60 * mib, Reserved: 60 * mib, Limit: -1,
	}, err)
}

// broken is a source whose every call but the first ones fails.
type broken struct {
	*allocator.SimulatedMemory
	works int
}

var errBroken = errors.New("unspecified launch failure")

func (b *broken) fail() error {
	if b.works--; b.works < 0 {
		return errBroken
	}
	return nil
}

func (b *broken) Get(n int64) (uint64, error) {
	if err := b.fail(); err != nil {
		return 0, err
	}
	return b.SimulatedMemory.Get(n)
}

func (b *broken) Unmap(addr uint64, n int64) error {
	return errors.Join(b.fail(), b.SimulatedMemory.Unmap(addr, n))
}

func (b *broken) Release(addr uint64, n int64) error {
	return errors.Join(b.fail(), b.SimulatedMemory.Release(addr, n))
}

func (b *broken) Put(addr uint64, n int64) error {
	return errors.Join(b.fail(), b.SimulatedMemory.Put(addr, n))
}

func (b *broken) Reserve(n int64) (uint64, error) {
	if err := b.fail(); err != nil {
		return 0, err
	}
	return b.SimulatedMemory.Reserve(n)
}

func (b *broken) Map(addr uint64, n int64) error {
	if err := b.fail(); err != nil {
		return err
	}
	return b.SimulatedMemory.Map(addr, n)
}

// TestFailureOfTheDeviceIsNotOOM: an error of the source other than
// ErrOutOfMemory comes out as it is, wherever it happens.
func TestFailureOfTheDeviceIsNotOOM(t *testing.T) {
	for _, conf := range configs {
		config, err := allocator.ParseConfig(conf)
		require.NoError(t, err)
		for works := range 4 {
			heap, err := allocator.New(&broken{allocator.NewMemory(1<<30, 0), works}, config)
			require.NoError(t, err)
			for range works + 1 {
				if _, err = heap.Malloc(15 * mib); err != nil {
					break
				}
			}
			require.ErrorIs(t, err, errBroken, "%q, %d calls work", conf, works)
		}
	}
}

// One segment, or one range with one page, is obtained with the first calls and cannot be released.
func TestFailureToGiveBackComesOut(t *testing.T) {
	for conf, works := range map[string]int{"": 1, "expandable_segments:True": 2} {
		config, err := allocator.ParseConfig(conf)
		require.NoError(t, err)
		for more := range works {
			heap, err := allocator.New(&broken{allocator.NewMemory(1<<30, 0), works + more}, config)
			require.NoError(t, err)
			b, err := heap.Malloc(15 * mib)
			require.NoError(t, err)
			heap.Free(b)
			require.ErrorIs(t, heap.EmptyCache(), errBroken, conf)
		}
	}
}

// TestTraceTellsWhatHappensInOrder: a device of 100 MiB holds 60; 70 more fit only after the cache was emptied.
func TestTraceTellsWhatHappensInOrder(t *testing.T) {
	var got []string
	heap := newHeap(t, 100*mib, "")
	heap.SetTrace(func(e allocator.TraceEvent) { got = append(got, fmt.Sprintf("%v %d", e.Action, e.Size)) })
	first, err := heap.Malloc(60*mib - 1)
	require.NoError(t, err)
	heap.Free(first)
	_, err = heap.Malloc(70 * mib)
	require.NoError(t, err)
	_, err = heap.Malloc(40 * mib)
	require.Error(t, err)
	require.Equal(t, []string{
		"segment_alloc 62914560", "alloc 62914559", "free_requested 62914559", "free_completed 62914559",
		"segment_free 62914560", "segment_alloc 73400320", "alloc 73400320", "oom 41943040",
	}, got)
	heap.SetTrace(nil)
	require.NoError(t, heap.EmptyCache())
	require.Len(t, got, 8)
}

// TestTraceAddsUpToTheStatistics replays the trace of expandable segments:
// mapped less unmapped is reserved, allocated less freed is requested.
func TestTraceAddsUpToTheStatistics(t *testing.T) {
	for _, conf := range configs {
		heap := newHeap(t, 200*mib, conf)
		var reserved, requested int64
		heap.SetTrace(func(e allocator.TraceEvent) {
			switch e.Action {
			case allocator.TraceAlloc:
				requested += e.Size
			case allocator.TraceFreeCompleted:
				requested -= e.Size
			case allocator.TraceSegmentAlloc, allocator.TraceSegmentMap:
				reserved += e.Size
			case allocator.TraceSegmentFree, allocator.TraceSegmentUnmap:
				reserved -= e.Size
			}
		})
		var blocks []*allocator.Block
		for i := range int64(60) {
			if b, err := heap.Malloc((i*i*7919)%(12*mib) + 1); err == nil {
				blocks = append(blocks, b)
			}
			if i%3 == 2 {
				heap.Free(blocks[0])
				blocks = blocks[1:]
			}
			if i == 40 {
				require.NoError(t, heap.EmptyCache())
			}
			require.Equal(t, heap.Reserved(), reserved, conf)
			require.Equal(t, heap.Requested(), requested, conf)
		}
	}
}

// TestNamesArePyTorchs: snapshots and statistics use these words.
func TestNamesArePyTorchs(t *testing.T) {
	require.Equal(t, "inactive active_allocated active_pending_free unmapped",
		fmt.Sprint(allocator.Free, " ", allocator.Allocated, " ", allocator.PendingFree, " ", allocator.PendingFree+1))
}

// Counting fewer statistics changes neither segments nor peaks.
func TestFewerStatisticsAreTheSame(t *testing.T) {
	for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:32"} {
		var all [2]allocator.Stats
		for i := range all {
			heap := newHeap(t, 1<<40, conf)
			if i == 1 {
				heap.CountBytesOnly()
			}
			r, live := rand.New(rand.NewPCG(1, 2)), make([]*allocator.Block, 256)
			for _, n := range trainingSizes(r, 1<<12) {
				at := r.IntN(len(live))
				heap.Free(live[at])
				b, err := heap.Malloc(n)
				require.NoError(t, err)
				live[at] = b
			}
			all[i] = heap.Stats()
		}
		require.Equal(t, all[0].ReservedBytes, all[1].ReservedBytes, conf)
		require.Equal(t, all[0].Segment, all[1].Segment, conf)
		require.Equal(t, all[0].AllocatedBytes[allocator.AllPools].Peak,
			all[1].AllocatedBytes[allocator.AllPools].Peak, conf)
		require.Equal(t, all[0].RequestedBytes[allocator.AllPools].Peak,
			all[1].RequestedBytes[allocator.AllPools].Peak, conf)
		require.Zero(t, all[1].Allocation, conf)
	}
}
