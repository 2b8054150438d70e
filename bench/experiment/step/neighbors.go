package step

import (
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/device"
)

// Shared warns of software that shares the device, and of others that nobody tells of.
func Shared(d device.Device) []report.Warning {
	var all []report.Warning
	if o, ok := d.(device.Observer); ok && !o.Baseline().OthersKnown {
		b := o.Baseline()
		all = append(all, report.Warning{
			What: fmt.Sprintf("what other processes hold of %s is not known, since NVML does not tell: %s are "+
				"taken for the context and %s for theirs",
				d.Name(), bytesize.Format(b.Context), bytesize.Format(b.Others)),
			Hint: "nothing is learned from such runs (calibrate); in a container, start it with " +
				"NVIDIA_DRIVER_CAPABILITIES=compute,utility",
		})
	}
	if s, ok := d.(device.Divided); ok {
		for _, way := range s.Shared() {
			all = append(all, report.Warning{What: way})
		}
	}
	return all
}

// A Neighborhood is the set of other processes on a device that were warned of, by
// process id.
type Neighborhood map[int]bool

// Warnings returns a warning for each process that uses the device now, or was seen on
// it, and was not warned of before.
func (n *Neighborhood) Warnings(d device.Device, seen ...device.Neighbor) []report.Warning {
	if o, ok := d.(device.Observer); ok {
		seen = append(seen, o.Neighbors()...)
	}
	if *n == nil {
		*n = Neighborhood{}
	}
	var all []report.Warning
	for _, p := range seen {
		if (*n)[p.PID] {
			continue
		}
		(*n)[p.PID] = true
		all = append(all, report.Warning{
			What: fmt.Sprintf("%s is also used by %v", d.Name(), p),
			Hint: "what fits depends on it; end it and try again to be sure",
		})
	}
	return all
}
