package program

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// toy allocates two buffers, runs an op from the first to the second and frees both.
func toy() *Program {
	return &Program{
		Instructions: []Instruction{
			{Alloc, 0},
			{Alloc, 1},
			{Launch, 0},
			{MarkPhase, 0},
			{Free, 1},
			{Free, 0},
			{EmptyCache, 0},
		},
		Buffers:  []Buffer{{Bytes: 8, Class: Batch}, {Bytes: 16, Class: Activations}},
		Ops:      []Op{{Work: Copy, Reads: Span{0, 1}, Writes: Span{1, 2}}},
		Operands: []Operand{{0, 8}, {1, 16}},
		Sites:    []Site{{Op: "copy"}},
		Phases:   []Phase{{Step: 0, Name: "forward"}},
	}
}

func TestSoundProgramIsValid(t *testing.T) {
	require.NoError(t, toy().Validate())
	require.NoError(t, new(Program).Validate())
}

func TestProgramsAddUp(t *testing.T) {
	p := toy()
	p.Buffers = append(p.Buffers, Buffer{Bytes: 15, Class: Activations})
	p.Instructions = append(p.Instructions, Instruction{Alloc, 2}, Instruction{Free, 2})
	p.Ops[0].FLOPs = 3
	p.Ops = append(p.Ops, Op{Work: Copy, FLOPs: 4})
	require.EqualValues(t, 24, p.Peak())
	require.EqualValues(t, 7, p.FLOPs())
}

func TestUnsoundProgramIsNamed(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(*Program)
		want  string
	}{
		{"allocated twice", func(p *Program) {
			p.Instructions[1].Arg = 0
		}, "instruction 1: cannot allocate: buffer 0 is allocated; record it again"},
		{"used before", func(p *Program) {
			p.Instructions[1], p.Instructions[2] = p.Instructions[2], p.Instructions[1]
		}, "instruction 1: operator call 0: buffer 1 is not allocated yet; record it again"},
		{"freed twice", func(p *Program) { p.Instructions[5].Arg = 1 }, "instruction 5: cannot free: buffer 1 is freed; record it again"},
		{"no such buffer", func(p *Program) { p.Instructions[0].Arg = 9 }, "the recording is damaged at instruction 0: cannot allocate: there is no buffer 9; record it again"},
		{"no such op", func(p *Program) { p.Instructions[2].Arg = 9 }, "the recording is damaged at instruction 2: there is no operator call 9; record it again"},
		{"no such phase", func(p *Program) { p.Instructions[3].Arg = 9 }, "the recording is damaged at instruction 3: there is no phase 9; record it again"},
		{"no such kind", func(p *Program) { p.Instructions[3].Kind = 99 }, "the recording is damaged at instruction 3: there is no kind of instruction 99; record it again"},
		{"no bytes", func(p *Program) { p.Buffers[0].Bytes = 0 }, "buffer 0 has 0 bytes"},
		{"no such class", func(p *Program) { p.Buffers[0].Class = NumClasses }, "unknown class"},
		{"no such site", func(p *Program) { p.Buffers[0].Site = 3 }, "unknown line of code (site) 3; record it again"},
		{"no such product", func(p *Program) { p.Ops[0].ProductIndex = 1 }, "the recording is damaged at instruction 2: operator call 0 refers to matrix product 1 of 0; record it again"},
		{"no such operand", func(p *Program) { p.Ops[0].Writes.To = 3 }, "operands 1 to 3, and there are 2; record it again"},
		{
			"no such stream of a buffer", func(p *Program) { p.Buffers[0].Stream = 1 },
			"buffer 0 is on the unknown stream 1; record it again",
		},
		{"no such stream of an op", func(p *Program) { p.Ops[0].Stream = 1 }, "the recording is damaged at instruction 2: operator call 0 is on the unknown stream 1; record it again"},
		{"no such event", func(p *Program) {
			p.Instructions[3] = Instruction{RecordEvent, 0}
		}, "the recording is damaged at instruction 3: there is no event 0; record it again"},
		{"an event twice", func(p *Program) {
			p.Events = []Event{{}}
			p.Instructions = []Instruction{{RecordEvent, 0}, {RecordEvent, 0}}
		}, "instruction 1: event 0 is recorded twice; record it again"},
		{
			"no such wait", func(p *Program) { p.Instructions[3] = Instruction{AwaitEvent, 0} },
			"the recording is damaged at instruction 3: there is no wait 0; record it again",
		},
		{"waited for before", func(p *Program) {
			p.Events, p.Waits = []Event{{}}, []Wait{{}}
			p.Instructions[3] = Instruction{AwaitEvent, 0}
		}, "the recording is damaged at instruction 3: event 0 is awaited before it is recorded; record it again"},
		{"a wait of no stream", func(p *Program) {
			p.Events, p.Waits = []Event{{}}, []Wait{{Stream: 2}}
			p.Instructions = []Instruction{{RecordEvent, 0}, {AwaitEvent, 0}}
		}, "the recording is damaged at instruction 1: wait 0 is on the unknown stream 2; record it again"},
		{"more than it has", func(p *Program) {
			p.Operands[1].Bytes = 17
		}, "the recording is damaged at instruction 2: operator call 0 uses 17 bytes of 16 of buffer 1; record it again"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := toy()
			c.spoil(p)
			require.ErrorContains(t, p.Validate(), c.want)
		})
	}
}

func TestStreamsAndEventsAreValid(t *testing.T) {
	p := toy()
	p.Streams = []string{"compute", "communicate"}
	p.Buffers[1].Stream, p.Ops[0].Stream = 1, 1
	p.Events, p.Waits = []Event{{Stream: 1}}, []Wait{{Stream: 0, Event: 0}}
	p.Instructions = append(p.Instructions, Instruction{RecordEvent, 0}, Instruction{AwaitEvent, 0})
	require.NoError(t, p.Validate())
}

func TestCollectivesSendWhatARingDoes(t *testing.T) {
	cases := []struct {
		work Work
		want int64
	}{
		{AllGather, 700},
		{ReduceScatter, 1400},
		{AllReduce, 2 * 700},
		{Broadcast, 800},
		{Send, 1600},
		{Receive, 800},
		{Copy, 0},
	}
	p := toy()
	p.Operands = []Operand{{0, 1600}, {1, 800}}
	for _, c := range cases {
		op := &Op{Work: c.work, GroupSize: 8, Reads: Span{0, 1}, Writes: Span{1, 2}}
		require.Equal(t, c.want, p.SentBytes(op), c.work)
		require.Equal(t, c.work != Copy, c.work.IsCollective(), c.work)
		op.GroupSize = 1
		require.Zero(t, p.SentBytes(op), c.work)
	}
}
