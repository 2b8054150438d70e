package report

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// Sheets returns the tables of a report.
func (r *Report) Sheets() []Sheet {
	switch {
	case r.Script != nil:
		return r.scriptSheets()
	case r.Kind == Sweep && len(r.Devices) > 1:
		return lists.Map(r.Devices, func(d Device) Sheet { return r.forDevice(d).sweepSheet() })
	case r.Kind == Sweep:
		return []Sheet{r.sweepSheet()}
	case len(r.Devices) > 1:
		return append([]Sheet{r.gpusSheet()}, r.lengthsSheets()...)
	default:
		return slices.Concat([]Sheet{r.componentsSheet()}, r.buffersSheets(), r.lengthsSheets())
	}
}

// String describes the device in a few words.
func (d Device) String() string {
	return phrase.If(d.Simulated, "simulated ") + d.Title + " with " + bytesize.Format(d.Memory) +
		phrase.Prefix(", ", d.place()) + phrase.Prefix(", driver ", d.Driver)
}

// forDevice returns the part of the report about one of its devices.
func (r *Report) forDevice(d Device) *Report {
	part := *r
	part.Devices = []Device{d}
	part.Points = lists.Filter(r.Points, func(p Point) bool { return p.Device == d.Name })
	part.Refused = slices.DeleteFunc(slices.Clone(r.Refused),
		func(x Refusal) bool { return x.Device != "" && x.Device != d.Name })
	return &part
}

// Kind returns the kind of runs on the device, as [Run.Kind] does.
func (d Device) Kind() string { return deviceKind(d.Simulated) }

func deviceKind(simulated bool) string {
	if simulated {
		return "simulated"
	}
	return measured
}

// measured is the kind of a run on a GPU.
const measured = "measured"

// communication is the component of NCCL's memory.
const communication = "communication"

// String describes the result in a few words.
func (l *Largest) String() string {
	switch {
	case l.Batch == 0:
		return fmt.Sprintf("no batch is %s: %d is not", l.criterion(), l.FirstFailing)
	case l.FirstFailing == 0:
		return fmt.Sprintf("largest batch tried: %d, which is %s", l.Batch, l.criterion()) +
			phrase.If(l.Samples > 0, "; the data set has %d samples", l.Samples)
	}
	return fmt.Sprintf("largest batch that is %s: %d; %s%d is not", l.criterion(), l.Batch,
		phrase.If(l.Interpolated, "by the line through the runs, "), l.FirstFailing) +
		phrase.If(l.Limit > 0, "; the limit is %s of the GPU (--safety-margin), with "+
			"the most that the CUDA context may take", bytesize.Format(l.Limit))
}

// criterion describes the condition of a search.
func (l *Largest) criterion() string {
	if l.Safe {
		return "safe"
	}
	return "not out of memory"
}

// String describes the failed allocation: op, phase and tensor.
func (o *OOM) String() string {
	where := o.Op + phrase.Prefix(" of ", o.Node) + phrase.Prefix(" in ", o.Module) +
		phrase.If(o.Line != "", " (%s)", o.Line)
	return fmt.Sprintf("phase %s, %s requested %s of %s with %s left", o.Phase, where, bytesize.Format(o.Requested),
		o.Class, bytesize.Format(o.Free))
}
