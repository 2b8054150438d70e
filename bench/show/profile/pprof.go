package profile

import (
	"io"
	"strings"

	"github.com/google/pprof/profile"
)

// WritePprof writes the live buffers at the peak as a pprof profile: one sample per buffer, with the stack of modules
// and the operator that allocated it, and its class and phase as labels. Values are the number of buffers and their
// requested and allocated bytes. The allocated bytes, shown by default, sum to the peak exactly.
func (p *Profile) WritePprof(w io.Writer) error {
	out := &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "buffers", Unit: "count"},
			{Type: "requested", Unit: "bytes"},
			{Type: "allocated", Unit: "bytes"},
		},
		DefaultSampleType: "allocated",
		Comments:          []string{p.String(), "peak in " + p.Run.Peak.Phase.String()},
	}
	stacks := stackLocations{out: out, locations: map[string]*profile.Location{}}
	for _, h := range p.Run.Peak.Live {
		out.Sample = append(out.Sample, &profile.Sample{
			Location: stacks.of(p.Stack(h.Buffer)),
			Value:    []int64{1, h.Requested, h.Allocated},
			Label:    map[string][]string{"class": {h.Class.String()}},
		})
	}
	if err := out.CheckValid(); err != nil {
		return err
	}
	return out.Write(w)
}

// Stack returns the stack of a buffer's allocation, outermost first: the model, the modules by their full paths, the
// operator. For a buffer outside of modules, its class replaces the modules.
func (p *Profile) Stack(buffer uint32) []string {
	stack := []string{p.Case.Model}
	site := p.Site(buffer)
	if site.Module == "" {
		stack = append(stack, "("+p.Program.Buffers[buffer].Class.String()+")")
	}
	for i, c := range site.Module {
		if c == '.' {
			stack = append(stack, site.Module[:i])
		}
	}
	if site.Module != "" {
		stack = append(stack, site.Module)
	}
	return append(stack, Operator(site))
}

// stackLocations creates the locations of a pprof profile, one for each distinct frame.
type stackLocations struct {
	out       *profile.Profile
	locations map[string]*profile.Location
}

func (s *stackLocations) of(frames []string) []*profile.Location {
	out := make([]*profile.Location, len(frames))
	for i := range frames {
		key := strings.Join(frames[:i+1], "\x00")
		l := s.locations[key]
		if l == nil {
			id := uint64(len(s.locations) + 1)
			f := &profile.Function{ID: id, Name: frames[i], SystemName: frames[i]}
			l = &profile.Location{ID: id, Line: []profile.Line{{Function: f}}}
			s.locations[key] = l
			s.out.Function = append(s.out.Function, f)
			s.out.Location = append(s.out.Location, l)
		}
		out[len(frames)-1-i] = l // pprof needs the innermost first
	}
	return out
}
