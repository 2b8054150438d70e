package allocator

// Stat counts one quantity, as torch.cuda.memory_stats does.
type Stat struct {
	// Current is the current value, Peak its maximum since the last reset.
	Current, Peak int64
	// Allocated is the sum of all increases.
	Allocated int64
}

func (s *Stat) add(n int64) {
	s.Current += n
	s.Allocated += n
	if s.Current > s.Peak {
		s.Peak = s.Current
	}
}

func (s *Stat) sub(n int64) { s.Current -= n }

func (s *Stat) resetPeak() { s.Peak = s.Current }

// Pool selects the part of a [PoolStat].
type Pool uint8

// The pools for which PyTorch counts statistics.
const (
	// AllPools is the small and the large pool together.
	AllPools Pool = iota
	// SmallPool serves requests of up to 1 MiB after rounding.
	SmallPool
	// LargePool serves larger requests.
	LargePool

	numPools = iota
)

// PoolStat holds the [Stat] of both pools together and of each pool, indexed by [Pool].
type PoolStat [numPools]Stat

func (s *PoolStat) add(p Pool, n int64) {
	s[AllPools].add(n)
	s[p].add(n)
}

func (s *PoolStat) sub(p Pool, n int64) {
	s[AllPools].sub(n)
	s[p].sub(n)
}

// change adds n, which may be negative.
func (s *PoolStat) change(p Pool, n int64) {
	if n > 0 {
		s.add(p, n)
	} else if n < 0 {
		s.sub(p, -n)
	}
}

// Stats are the statistics of an allocator, named as in torch.cuda.memory_stats.
type Stats struct {
	// Allocation counts allocated blocks, Active allocated blocks and freed ones that still wait for events,
	// InactiveSplit free parts of split segments. Expandable segments are in neither Segment nor InactiveSplit.
	Allocation, Segment, Active, InactiveSplit PoolStat

	// AllocatedBytes is the size of the allocated blocks, including rounding and remainders that were not split off.
	// Its current value is memory_allocated().
	AllocatedBytes PoolStat
	// ReservedBytes is the size of segments and mapped pages. Its current value is memory_reserved().
	ReservedBytes PoolStat
	// ActiveBytes are the sizes of active blocks.
	ActiveBytes PoolStat
	// InactiveSplitBytes is the size of the blocks that InactiveSplit counts.
	InactiveSplitBytes PoolStat
	// RequestedBytes are the requested bytes of active blocks.
	RequestedBytes PoolStat

	// OversizeAllocations and OversizeSegments count blocks and segments of at least the maximum split size.
	OversizeAllocations, OversizeSegments Stat

	// NumAllocRetries counts requests that were retried after emptying the cache, NumOOMs requests that failed.
	NumAllocRetries, NumOOMs int64
	// NumSyncAllStreams counts calls that waited for all pending events.
	NumSyncAllStreams int64
	// NumDeviceAlloc and NumDeviceFree count calls of the source: one per segment, and one per mapping or unmapping of
	// any number of pages.
	NumDeviceAlloc, NumDeviceFree int64
}

func (s *Stats) poolStats() [9]*PoolStat {
	return [...]*PoolStat{
		&s.Allocation, &s.Segment, &s.Active, &s.InactiveSplit,
		&s.AllocatedBytes, &s.ReservedBytes, &s.ActiveBytes, &s.InactiveSplitBytes, &s.RequestedBytes,
	}
}

func (s *Stats) resetPeaks() {
	for _, ps := range s.poolStats() {
		for i := range ps {
			ps[i].resetPeak()
		}
	}
	s.OversizeAllocations.resetPeak()
	s.OversizeSegments.resetPeak()
}
