package allocator_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/tools/sample"
)

// vectors are sequences of operations that ran through the allocator library of torch 2.11.0+cu130 with the statistics
// after each; the file describes its own format.
type vectors struct {
	HashInit  uint64   `json:"hash_init,string"`
	HashPrime uint64   `json:"hash_prime,string"`
	Golden    []vector `json:"golden"`
	Random    []vector `json:"random"`
}

type vector struct {
	Name     string
	Conf     string
	Total    int64
	Fraction *float64
	Ops      string
	Hash     string
	OpsN     int `json:"ops_n"`
	Rows     [][7]int64
	OOMs     []int
	Final    map[string]json.RawMessage
	Driver   map[string]int64
	Segments []json.RawMessage
	SegmentN int `json:"segments_n"`
}

func readVectors(tb testing.TB) vectors {
	f, err := os.Open("testdata/vectors.json.gz")
	require.NoError(tb, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(tb, err)
	var v vectors
	require.NoError(tb, json.NewDecoder(z).Decode(&v))
	return v
}

// counted is a source that counts the calls that reach the driver.
type counted struct {
	*allocator.SimulatedMemory
	mallocs, frees, creates, releases int64
}

func (c *counted) Get(n int64) (uint64, error) {
	addr, err := c.SimulatedMemory.Get(n)
	if err == nil {
		c.mallocs++
	}
	return addr, err
}

func (c *counted) Put(addr uint64, n int64) error {
	c.frees++
	return c.SimulatedMemory.Put(addr, n)
}

func (c *counted) Map(addr uint64, n int64) error {
	err := c.SimulatedMemory.Map(addr, n)
	if err == nil {
		c.creates++
	}
	return err
}

func (c *counted) Unmap(addr uint64, n int64) error {
	c.releases++
	return c.SimulatedMemory.Unmap(addr, n)
}

// sequence runs the operations of a vector.
type sequence struct {
	t       *testing.T
	heap    *allocator.Allocator
	source  *counted
	base    uint64 // the address that a vector calls zero
	stream  allocator.Stream
	blocks  []*allocator.Block // nil once freed or if malloc failed
	ooms    []int
	hash    uint64
	prime   uint64
	current [7]int64
}

func newSequence(t *testing.T, v vector, init, prime uint64) *sequence {
	config, err := allocator.ParseConfig(v.Conf)
	require.NoError(t, err)
	if v.Fraction != nil {
		config.MemoryFraction = *v.Fraction
	}
	source := &counted{SimulatedMemory: allocator.NewMemory(v.Total, 0)}
	source.Rising = true // as addresses of the driver below the recorded vectors
	base, err := source.Reserve(0)
	require.NoError(t, err)
	heap, err := allocator.New(source, config)
	require.NoError(t, err)
	return &sequence{t: t, heap: heap, source: source, base: base, hash: init, prime: prime}
}

func (s *sequence) mix(v uint64) {
	for range 8 {
		s.hash = (s.hash ^ v&0xff) * s.prime
		v >>= 8
	}
}

// do runs the operation with number n, counted from zero.
func (s *sequence) do(n int, op string) {
	arg := func(text string) int64 {
		v, err := strconv.ParseInt(text, 10, 64)
		require.NoError(s.t, err)
		return v
	}
	result := ^uint64(0)
	switch op[0] {
	case 'm':
		b, err := s.heap.MallocOn(s.stream, arg(op[1:]))
		if err != nil {
			var oom *allocator.OOMError
			require.ErrorAs(s.t, err, &oom)
			s.ooms = append(s.ooms, n)
		} else {
			result = b.Addr() - s.base
		}
		s.blocks = append(s.blocks, b)
	case 'f':
		id := arg(op[1:])
		s.heap.Free(s.blocks[id])
		s.blocks[id] = nil
	case 's':
		s.stream = handle(arg(op[1:]))
	case 'r':
		id, stream, _ := strings.Cut(op[1:], ":")
		s.heap.RecordStream(s.blocks[arg(id)], handle(arg(stream)))
	case 'c':
		s.heap.CompleteEvents()
	case 'e':
		require.NoError(s.t, s.heap.EmptyCache())
	case 'p':
		s.heap.ResetPeakStats()
	default:
		s.t.Fatalf("unknown operation %q", op)
	}
	stats := s.heap.Stats()
	s.current = [7]int64{
		int64(n + 1),
		stats.AllocatedBytes[allocator.AllPools].Current,
		stats.ReservedBytes[allocator.AllPools].Current,
		stats.ActiveBytes[allocator.AllPools].Current,
		stats.InactiveSplitBytes[allocator.AllPools].Current,
		stats.RequestedBytes[allocator.AllPools].Current,
		stats.Segment[allocator.AllPools].Current,
	}
	for _, v := range s.current[1:6] {
		s.mix(uint64(v))
	}
	if op[0] == 'm' {
		s.mix(result)
	}
}

func handle(stream int64) allocator.Stream { return allocator.Stream(stream) * 0x10000 }

// TestEveryRecordedOperationIsRepeatedExactly compares, for every operation of every recorded sequence, addresses and
// current statistics (through the hash), the rows of statistics, which requests failed, all statistics at the end, the
// calls that reached the driver and the final layout.
func TestEveryRecordedOperationIsRepeatedExactly(t *testing.T) {
	all := readVectors(t)
	operations := 0
	for _, v := range append(all.Golden, sample.Of(all.Random)...) {
		operations += v.OpsN
		t.Run(v.Name, func(t *testing.T) {
			s := newSequence(t, v, all.HashInit, all.HashPrime)
			rows := v.Rows
			ops := strings.Fields(v.Ops)
			require.Len(t, ops, v.OpsN)
			for i, op := range ops {
				s.do(i, op)
				if len(rows) > 0 && rows[0][0] == int64(i+1) {
					require.Equal(t, rows[0], s.current, "after operation %d, %s", i+1, op)
					rows = rows[1:]
				}
			}
			require.Empty(t, rows)
			require.Equal(t, v.Hash, fmt.Sprintf("%x", s.hash))
			require.Equal(t, append([]int{}, v.OOMs...), append([]int{}, s.ooms...))
			checkFinal(t, v.Final, s.heap.Stats())
			require.Equal(t, v.Driver, map[string]int64{
				"cudaMalloc": s.source.mallocs, "cudaFree": s.source.frees,
				"cuMemCreate": s.source.creates, "cuMemRelease": s.source.releases,
				"max_device_used": s.source.Peak(),
			})
			checkLayout(t, v, s)
		})
	}
	if sample.All() {
		require.Equal(t, 116_225, operations)
	}
}

// checkFinal compares all statistics. A null in the vector depends on the
// order of a hash map in PyTorch and is not compared.
func checkFinal(t *testing.T, want map[string]json.RawMessage, got allocator.Stats) {
	pools := map[string]allocator.PoolStat{
		"allocation": got.Allocation, "segment": got.Segment, "active": got.Active, "inactive_split": got.InactiveSplit,
		"allocated_bytes": got.AllocatedBytes, "reserved_bytes": got.ReservedBytes, "active_bytes": got.ActiveBytes,
		"inactive_split_bytes": got.InactiveSplitBytes, "requested_bytes": got.RequestedBytes,
	}
	counts := map[string]int64{
		"num_alloc_retries": got.NumAllocRetries, "num_ooms": got.NumOOMs,
		"num_sync_all_streams": got.NumSyncAllStreams,
		"num_device_alloc":     got.NumDeviceAlloc, "num_device_free": got.NumDeviceFree,
	}
	oversize := map[string]allocator.Stat{
		"oversize_allocations": got.OversizeAllocations, "oversize_segments": got.OversizeSegments,
	}
	require.Len(t, want, len(pools)+len(counts)+len(oversize))
	for name, raw := range want {
		if stat, ok := pools[name]; ok {
			var rows [3][4]*int64
			require.NoError(t, json.Unmarshal(raw, &rows))
			for p, row := range rows {
				have := [4]int64{stat[p].Current, stat[p].Peak, stat[p].Allocated, stat[p].Allocated - stat[p].Current}
				for i, v := range row {
					if v != nil {
						require.Equal(t, *v, have[i], "%s of %v, figure %d", name, allocator.Pool(p), i)
					}
				}
			}
		} else if n, ok := counts[name]; ok {
			require.JSONEq(t, string(raw), fmt.Sprint(n), name)
		} else {
			require.Contains(t, oversize, name)
			require.JSONEq(t, string(raw), fmt.Sprintf("[%d,%d]", oversize[name].Current, oversize[name].Peak), name)
		}
	}
}

// checkLayout compares the segments and their blocks, where they are recorded.
func checkLayout(t *testing.T, v vector, s *sequence) {
	snapshot := s.heap.Snapshot()
	if v.Segments == nil {
		require.Len(t, snapshot, v.SegmentN)
		return
	}
	require.Len(t, snapshot, len(v.Segments))
	flag := map[bool]int{true: 1}
	state := map[allocator.State]int{allocator.Allocated: 2, allocator.PendingFree: 1, allocator.Free: 0}
	for i, segment := range snapshot {
		var want []any
		require.NoError(t, json.Unmarshal(v.Segments[i], &want))
		blocks := []any{}
		for j, b := range segment.Blocks {
			requested := float64(b.Requested)
			if b.State == allocator.Free { // stale in PyTorch
				requested = want[5].([]any)[j].([]any)[1].(float64)
			}
			blocks = append(blocks, []any{float64(b.Size), requested, float64(state[b.State])})
		}
		require.Equal(t, want, []any{
			float64(segment.Address - s.base), float64(segment.Size),
			float64(flag[segment.Pool == allocator.LargePool]), float64(flag[segment.Expandable]),
			float64(segment.Stream), blocks,
		})
	}
}
