package program

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// toy allocates two buffers, runs an op from the first to the second and frees
// both.
func toy() *Program {
	return &Program{
		Instructions: []Instruction{{Alloc, 0}, {Alloc, 1}, {Launch, 0}, {Mark, 0}, {Free, 1}, {Free, 0}, {EmptyCache, 0}},
		Buffers:      []Buffer{{Bytes: 8, Class: Batch}, {Bytes: 16, Class: Activations}},
		Ops:          []Op{{Work: Copy, Reads: Span{0, 1}, Writes: Span{1, 2}}},
		Operands:     []Operand{{0, 8}, {1, 16}},
		Sites:        []Site{{Op: "copy"}},
		Phases:       []Phase{{Step: 0, Name: "forward"}},
	}
}

func TestSoundProgramIsValid(t *testing.T) {
	require.NoError(t, toy().Validate())
	require.NoError(t, new(Program).Validate())
}

func TestUnsoundProgramIsNamed(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(*Program)
		want  string
	}{
		{"allocated twice", func(p *Program) { p.Instructions[1].Arg = 0 }, "instruction 1: alloc: buffer 0 is allocated"},
		{"used before", func(p *Program) { p.Instructions[1], p.Instructions[2] = p.Instructions[2], p.Instructions[1] }, "instruction 1: launch: op 0: buffer 1 is not allocated yet"},
		{"freed twice", func(p *Program) { p.Instructions[5].Arg = 1 }, "instruction 5: free: buffer 1 is freed"},
		{"no such buffer", func(p *Program) { p.Instructions[0].Arg = 9 }, "alloc: there is no buffer 9"},
		{"no such op", func(p *Program) { p.Instructions[2].Arg = 9 }, "launch: there is no op 9"},
		{"no such phase", func(p *Program) { p.Instructions[3].Arg = 9 }, "mark: there is no phase 9"},
		{"no such kind", func(p *Program) { p.Instructions[3].Kind = 99 }, "unknown kind 99"},
		{"no bytes", func(p *Program) { p.Buffers[0].Bytes = 0 }, "buffer 0 has 0 bytes"},
		{"no such class", func(p *Program) { p.Buffers[0].Class = NumClasses }, "unknown class"},
		{"no such site", func(p *Program) { p.Buffers[0].Site = 3 }, "unknown site 3"},
		{"no such product", func(p *Program) { p.Ops[0].Product = 1 }, "op 0 is product 1 of 0"},
		{"no such operand", func(p *Program) { p.Ops[0].Writes.To = 3 }, "operands 1 to 3 of 2"},
		{"more than it has", func(p *Program) { p.Operands[1].Bytes = 17 }, "touches 17 bytes of buffer 1, which has 16"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := toy()
			c.spoil(p)
			require.ErrorContains(t, p.Validate(), c.want)
		})
	}
}
