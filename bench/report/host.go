package report

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// HostMemory is the host memory that training needs on each machine: resident bytes that the kernel cannot reclaim.
type HostMemory struct {
	Interval
	// Processes is the number of training processes on a machine, one for each GPU.
	Processes int `json:"processes"`
	// Peak is the moment that needs most: "loading" or "training".
	Peak string `json:"peak" jsonschema:"enum=loading,enum=training"`
	// Parts sum to the interval.
	Parts []HostPart `json:"parts"`
	// Memory is the machine's memory, without the GPU's part if both share one memory (Unified); absent if not given.
	Memory  int64 `json:"memory_bytes,omitempty"`
	Unified bool  `json:"unified,omitempty"`
}

// HostPart is a named part of a machine's need.
type HostPart struct {
	Name string `json:"name"`
	Interval
}

// check returns an error for impossible values: invalid ranges, and parts that do not sum to the whole.
func (h *HostMemory) check() error {
	if h == nil {
		return nil
	}
	var sum Interval
	if len(h.Parts) == 0 {
		return errors.New("the estimate: the parts of host memory are missing; export the result again")
	}
	for _, p := range h.Parts {
		if err := p.check("its estimate: host: " + p.Name); err != nil {
			return err
		}
		sum = Interval{sum.Bytes + p.Bytes, sum.Low + p.Low, sum.High + p.High}
	}
	if sum != h.Interval {
		return fmt.Errorf("the estimate: the parts of host memory add up to %d bytes; need %d", sum.Bytes, h.Bytes)
	}
	return h.Interval.check("its estimate: host")
}

// isShown reports whether a plan shows the machine's need: its memory is known, or the need without the processes'
// own memory exceeds the memory of its GPUs, which many machines do not have.
func (h *HostMemory) isShown(d Device) bool {
	return h != nil && (h.Memory > 0 || h.High-h.Parts[0].High > d.Memory*int64(h.Processes))
}

// note describes the need of each machine and its parts.
func (h *HostMemory) note(batch int) string {
	parts := lists.Map(h.Parts, func(p HostPart) string { return fmt.Sprintf("%s %s", p.Name, p.text()) })
	of := phrase.If(h.Memory > 0 && h.High > h.Memory, ", more than %s", h.available()) +
		phrase.If(h.Memory > 0 && h.High <= h.Memory, " of %s", h.available())
	machine := cmp.Or(phrase.If(h.Processes > 1, "each machine, with %d processes,", h.Processes), "the machine")
	return fmt.Sprintf("batch %d: %s needs %s of host memory%s, most while %s: %s.", batch, machine, h.text(), of,
		h.Peak, strings.Join(parts, ", "))
}

// available describes the host memory of the machine.
func (h *HostMemory) available() string {
	if h.Unified {
		return "the " + bytesize.Format(h.Memory) + " that the GPU leaves of their common memory"
	}
	return "its " + bytesize.Format(h.Memory)
}

func (i Interval) text() string {
	if i.Low == i.High {
		return bytesize.Format(i.Bytes)
	}
	return fmt.Sprintf("%s [%s, %s]", bytesize.Format(i.Bytes), bytesize.Format(i.Low), bytesize.Format(i.High))
}

// hostNotes returns the machine's need at the last point of a report if plans show it.
func (r *Report) hostNotes() []string {
	for i := len(r.Points) - 1; i >= 0; i-- {
		p := r.Points[i]
		if d, _ := r.Find(p.Device); p.Estimate != nil && p.Estimate.Host.isShown(d) {
			return []string{p.Estimate.Host.note(p.Batch)}
		}
	}
	return nil
}

// hostNotes returns the machine's need for the first recommended choice if plans show it; without a recommendation, for
// the choice with the lowest need.
func (f *Fit) hostNotes() []string {
	recommended := false
	say := func(c *Choice) []string {
		if d, _ := find(f.Devices, c.Device); c.Estimate.Host.isShown(d) {
			return []string{c.Estimate.Host.note(max(1, c.Batch))}
		}
		return nil
	}
	for i := range f.Choices {
		if c := &f.Choices[i]; c.Recommended {
			recommended = true
			if said := say(c); said != nil {
				return said
			}
		}
	}
	if c := f.smallestNeed(); c != nil && !recommended {
		return say(c)
	}
	return nil
}
