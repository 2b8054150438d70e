package pt2_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
)

// allocations counts the allocations of a program by the function that made them, until a phase ends.
func allocations(p *program.Program, phase string) (made, kept map[string]int) {
	made, kept = map[string]int{}, map[string]int{}
	var at []string // the functions, by buffer
	for range p.Buffers {
		at = append(at, "")
	}
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Alloc:
			s := p.Sites[p.Buffers[in.Arg].Site]
			at[in.Arg] = s.Native + " " + s.Where
			made[at[in.Arg]]++
			kept[at[in.Arg]]++
		case program.Free:
			kept[at[in.Arg]]--
		case program.MarkPhase:
			if p.Phases[in.Arg].Name == phase {
				return made, kept
			}
		}
	}
	return made, kept
}

// Bloom's GELU is an autograd.Function: it keeps its argument, and what its forward makes on the way goes with it.
func TestFunctionsKeepTheirArgumentsAlone(t *testing.T) {
	m := open(t, "hf-bloom-tiny")
	made, kept := allocations(record(t, m, models.Case{Batch: 2}), "forward")
	inside := 0
	for site, n := range made {
		if strings.Contains(site, "modeling_bloom.py:145:forward") {
			inside += n
		}
	}
	require.Equal(t, 9, inside, "operators of bloom_gelu_forward")
	for site, n := range kept {
		if strings.Contains(site, "modeling_bloom.py:145:forward") && !strings.HasPrefix(site, "mul ") {
			require.Zero(t, n, site)
		}
	}
	require.Equal(t, 1, kept["mul modeling_bloom.py:145:forward"], "the result, which the next layer keeps")
	caveats := m.Caveats(m.Default)
	require.Len(t, caveats, 1)
	require.Contains(t, caveats[0], "GeLUFunction (modeling_bloom.py:163:forward) is a custom autograd.Function")
}

// BERT makes its masks in a method of its own; while it is not traced it makes none where nothing is hidden.
func TestMasksOfTracingAreLeftOut(t *testing.T) {
	p := record(t, open(t, "hf-bert-tiny"), models.Case{Batch: 2})
	for _, s := range p.Sites {
		require.NotContains(t, s.Native, "where", s.Where)
		require.NotEqual(t, "expand", s.Op, s.Where)
	}
	made, _ := allocations(p, "backward")
	for site := range made {
		require.NotContains(t, site, "_safe_softmax", "attention without a mask is fused")
	}
}
