package trace

import "github.com/vprof/vprof/profiler/program"

// Play records the steps of a program that was recorded elsewhere: the tables of the tape
// become copies of its own. The tape must be new, and records nothing else.
func (t *Tape) Play(p *program.Program) {
	own := &t.prog
	own.Instructions = append(own.Instructions[:0], p.Instructions...)
	own.Buffers = append(own.Buffers[:0], p.Buffers...)
	own.Ops = append(own.Ops[:0], p.Ops...)
	own.Operands = append(own.Operands[:0], p.Operands...)
	own.Products = append(own.Products[:0], p.Products...)
	own.Sites = append(own.Sites[:0], p.Sites...)
	own.Phases = append(own.Phases[:0], p.Phases...)
	own.Streams = append([]string(nil), p.Streams...)
	own.Events = append(own.Events[:0], p.Events...)
	own.Waits = append(own.Waits[:0], p.Waits...)
}
