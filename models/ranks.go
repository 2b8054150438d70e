package models

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// RankRange is a range of ranks that run the same program.
type RankRange struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

func (r RankRange) String() string {
	if r.First == r.Last {
		return strconv.FormatInt(r.First, 10)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// maxComparedRanks is the largest number of ranks that are recorded one by one and compared.
const maxComparedRanks = 64

// DifferentRanks records a case's ranks and returns a range of ranks for each different program. With replicas (HSDP)
// it returns only the ranks of the first replica.
func (m Model) DifferentRanks(c Case, gpu trace.GPU, o Options) ([]RankRange, error) {
	c, err := m.Complete(c)
	if err != nil {
		return nil, err
	}
	s := c.Strategy
	if s == nil {
		return nil, errors.New("--rank all compares the ranks of several GPUs; set their number with --gpus")
	}
	record := func(rank int64) (*program.Program, error) {
		one := *s
		one.Rank = &rank
		c.Strategy = &one
		rec, err := m.RecordComplete(c, gpu, o)
		if err != nil {
			return nil, err
		}
		return rec.Program, nil
	}
	world := int64(c.GPUs)
	if s.CP > 1 && s.ContextParallelStyle() != Ulysses && world <= maxComparedRanks { // later ranks read more keys
		return compareAllRanks(world, record)
	}
	switch s.Name {
	case DDP:
		return []RankRange{{0, world - 1}}, nil
	case FSDP2:
		return compareOrderedRanks(record, world/max(1, s.Replicate), 1)
	case TP:
		return compareOrderedRanks(record, world/s.TP/max(1, s.Replicate), s.TP)
	}
	if world > maxComparedRanks {
		return nil,
			fmt.Errorf("all %d ranks of the strategy %s differ, and vprof compares at most %d; choose one with --rank",
				world, s.Name, maxComparedRanks)
	}
	return compareAllRanks(world, record)
}

type rankRecorder func(rank int64) (*program.Program, error)

func compareAllRanks(world int64, record rankRecorder) ([]RankRange, error) {
	var out []RankRange
	var last *program.Program
	for rank := range world {
		p, err := record(rank)
		if err != nil {
			return nil, err
		}
		if last != nil && equalPrograms(last, p) {
			out[len(out)-1].Last = rank
			continue
		}
		out, last = append(out, RankRange{rank, rank}), p
	}
	return out, nil
}

// compareOrderedRanks compares n groups of each neighboring ranks; the ranks of a group run the same program. Shards
// never grow with the rank. If two groups run the same program, all groups between them therefore do, too.
func compareOrderedRanks(record rankRecorder, n, each int64) ([]RankRange, error) {
	first, err := record(0)
	if err != nil {
		return nil, err
	}
	last, err := record((n - 1) * each)
	if err != nil {
		return nil, err
	}
	begins := []int64{0}
	var search func(from, to int64, a, b *program.Program) error
	search = func(from, to int64, a, b *program.Program) error {
		switch {
		case equalPrograms(a, b):
			return nil
		case to == from+1:
			begins = append(begins, to)
			return nil
		}
		mid := (from + to) / 2
		p, err := record(mid * each)
		if err != nil {
			return err
		}
		if err := search(from, mid, a, p); err != nil {
			return err
		}
		return search(mid, to, p, b)
	}
	if err := search(0, n-1, first, last); err != nil {
		return nil, err
	}
	slices.Sort(begins)
	out := make([]RankRange, len(begins))
	for i, b := range begins {
		end := n
		if i+1 < len(begins) {
			end = begins[i+1]
		}
		out[i] = RankRange{b * each, end*each - 1}
	}
	return out, nil
}

// equalPrograms reports whether two programs allocate the same sizes in the same order.
func equalPrograms(a, b *program.Program) bool {
	return slices.Equal(a.Instructions, b.Instructions) && reflect.DeepEqual(a.Buffers, b.Buffers)
}
