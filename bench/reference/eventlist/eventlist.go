// Package eventlist writes event lists: every allocation and free of some training steps, one a line, in the format of
// the lists recorded from PyTorch. It makes two recordings comparable line by line.
//
//	m STEP:PHASE                      the phase that ends here; step -1 is set-up
//	a ID BYTES OP NATIVE NODE WHERE   an allocation, in bytes as requested; stream=N
//	                                  follows where it is not the default stream
//	f ID                              a free
//
// IDs count allocations from 1. A dash stands for what is not known or does
// not apply: no autograd node in forward, no native function below the op.
package eventlist

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// Write writes the allocations, frees and phases of p.
func Write(w io.Writer, p *program.Program) error {
	out := bufio.NewWriter(w)
	ids := make([]int, len(p.Buffers))
	last := 0
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Alloc:
			last++
			ids[in.Arg] = last
			b := p.Buffers[in.Arg]
			s := p.Sites[b.Site]
			fmt.Fprintf(out, "a %d %d %s %s %s %s", last, b.Bytes, word(s.Op), word(s.Native), word(s.Node),
				word(s.Where))
			if b.Stream != 0 {
				fmt.Fprintf(out, " %s%d", streamField, b.Stream)
			}
			fmt.Fprintln(out)
		case program.Free:
			fmt.Fprintf(out, "f %d\n", ids[in.Arg])
		case program.MarkPhase:
			ph := p.Phases[in.Arg]
			fmt.Fprintf(out, "m %d:%s\n", ph.Step, word(ph.Name))
		}
	}
	return out.Flush() // a bufio.Writer keeps its first error
}

// streamField is the prefix of the field for an allocation's stream.
const streamField = "stream="

// word formats s as one field of a line; empty becomes a dash.
func word(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Join(strings.Fields(s), "_")
}
