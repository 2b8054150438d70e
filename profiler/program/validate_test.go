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
		}, "instruction 1: alloc: buffer 0 is allocated"},
		{"used before", func(p *Program) {
			p.Instructions[1], p.Instructions[2] = p.Instructions[2], p.Instructions[1]
		}, "instruction 1: launch: op 0: buffer 1 is not allocated yet"},
		{"freed twice", func(p *Program) { p.Instructions[5].Arg = 1 }, "instruction 5: free: buffer 1 is freed"},
		{"no such buffer", func(p *Program) { p.Instructions[0].Arg = 9 }, "alloc: buffer 9 is not in the table"},
		{"no such op", func(p *Program) { p.Instructions[2].Arg = 9 }, "launch: op 9 is not in the table"},
		{"no such phase", func(p *Program) { p.Instructions[3].Arg = 9 }, "mark: phase 9 is not in the table"},
		{"no such kind", func(p *Program) { p.Instructions[3].Kind = 99 }, "unknown kind of instruction 99"},
		{"no bytes", func(p *Program) { p.Buffers[0].Bytes = 0 }, "buffer 0 has 0 bytes"},
		{"no such class", func(p *Program) { p.Buffers[0].Class = NumClasses }, "unknown class"},
		{"no such site", func(p *Program) { p.Buffers[0].Site = 3 }, "unknown site 3"},
		{"no such product", func(p *Program) { p.Ops[0].ProductIndex = 1 }, "op 0 names matrix product 1 of 0"},
		{"no such operand", func(p *Program) { p.Ops[0].Writes.To = 3 }, "operands 1 to 3 of 2"},
		{
			"no such stream of a buffer", func(p *Program) { p.Buffers[0].Stream = 1 },
			"buffer 0 names the unknown stream 1",
		},
		{"no such stream of an op", func(p *Program) { p.Ops[0].Stream = 1 }, "op 0 names the unknown stream 1"},
		{"no such event", func(p *Program) {
			p.Instructions[3] = Instruction{RecordEvent, 0}
		}, "record: event 0 is not in the table"},
		{"an event twice", func(p *Program) {
			p.Events = []Event{{}}
			p.Instructions = []Instruction{{RecordEvent, 0}, {RecordEvent, 0}}
		}, "instruction 1: record: event 0 is recorded twice"},
		{
			"no such wait", func(p *Program) { p.Instructions[3] = Instruction{AwaitEvent, 0} },
			"wait: wait 0 is not in the table",
		},
		{"waited for before", func(p *Program) {
			p.Events, p.Waits = []Event{{}}, []Wait{{}}
			p.Instructions[3] = Instruction{AwaitEvent, 0}
		}, "wait: event 0 is not recorded yet"},
		{"a wait of no stream", func(p *Program) {
			p.Events, p.Waits = []Event{{}}, []Wait{{Stream: 2}}
			p.Instructions = []Instruction{{RecordEvent, 0}, {AwaitEvent, 0}}
		}, "wait 0 names the unknown stream 2"},
		{"more than it has", func(p *Program) {
			p.Operands[1].Bytes = 17
		}, "accesses 17 bytes of buffer 1, which has only 16"},
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
