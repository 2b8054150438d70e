package experiment

import (
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
)

// A neighborhood is the other processes on a device that were warned of, by
// number.
type neighborhood map[int]bool

// warnings are about the processes that use the device now, or were seen on it,
// and were not warned of yet: what fits depends on them.
func (n *neighborhood) warnings(d device.Device, seen ...device.Neighbor) []report.Warning {
	if o, ok := d.(device.Observer); ok {
		seen = append(seen, o.Neighbors()...)
	}
	if *n == nil {
		*n = neighborhood{}
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
