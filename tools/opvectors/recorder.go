package opvectors

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Recorder converts the instructions of a tape to the events of vectors.
type Recorder struct {
	t     *trace.Tape
	start int
	next  int
	index map[uint32]int
	but   string // native function whose allocations are ignored
}

// NewRecorder returns a recorder of the tape's further instructions.
func NewRecorder(t *trace.Tape) *Recorder {
	return &Recorder{t: t, start: len(t.Program().Instructions), index: map[uint32]int{}}
}

// Events returns the events since the previous call, or since NewRecorder.
func (r *Recorder) Events() []string {
	p := r.t.Program()
	var out []string
	for _, i := range p.Instructions[r.start:] {
		switch i.Kind {
		case program.Alloc:
			if r.but != "" && p.Sites[p.Buffers[i.Arg].Site].Native == r.but {
				r.index[i.Arg] = -1
				continue
			}
			r.next++
			r.index[i.Arg] = r.next - 1
			out = append(out, fmt.Sprintf("+%d", p.Buffers[i.Arg].Bytes))
		case program.Free:
			switch k, ok := r.index[i.Arg]; {
			case ok && k < 0:
			case ok:
				out = append(out, fmt.Sprintf("-%d", k))
			default:
				out = append(out, fmt.Sprintf("-x%d", p.Buffers[i.Arg].Bytes))
			}
		}
	}
	r.start = len(p.Instructions)
	return out
}

// convWorkspace is the native function that allocates workspaces of convolutions. Vectors since 2.15 name the operator
// instead, for its result, too; in them a workspace is an allocation that is freed at once.
const convWorkspace = "run_conv_plan"

var convolution = map[string]bool{
	"cudnn_convolution": true, "cudnn_convolution_transpose": true,
	"convolution_backward": true,
}

// numbering renumbers recorded allocations when some are ignored.
type numbering struct {
	kept []int // new number by recorded number; -1 for ignored ones
	next int
}

// tokens returns events reduced to the compared parts: sizes and order.
func tokens(events []string) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i], _, _ = strings.Cut(e, " ")
	}
	return out
}

// tokens returns reduced events without the allocations of one native function, if one is named.
func (n *numbering) tokens(events []string, but string) []string {
	if but == "" {
		return tokens(events)
	}
	out := make([]string, 0, len(events))
	for i, e := range events {
		token, rest, _ := strings.Cut(e, " ")
		if token[0] == '+' {
			own := fmt.Sprintf("-%d", len(n.kept)) // the free of this allocation
			if words := strings.Fields(rest); len(words) > 1 && (words[1] == but || but == convWorkspace &&
				convolution[words[1]] && i+1 < len(events) && events[i+1] == own) {
				n.kept = append(n.kept, -1)
				continue
			}
			n.kept = append(n.kept, n.next)
			n.next++
		} else if token[1] != 'x' {
			k, err := strconv.Atoi(token[1:])
			if err != nil || k >= len(n.kept) {
				panic("opvectors: free of unknown allocation " + token)
			}
			if n.kept[k] < 0 {
				continue
			}
			token = fmt.Sprintf("-%d", n.kept[k])
		}
		out = append(out, token)
	}
	return out
}
