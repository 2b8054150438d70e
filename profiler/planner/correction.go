package planner

import (
	"fmt"
	"math"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// Term is a coefficient that calibration fits: bytes, or a share of bytes, that runs need in addition to a replay.
type Term uint8

// The terms. Workspace, Context and Granularity are bytes, the slacks shares of the replay's bytes. With w, c, g, a, r,
// d for them in this order, A and R for the allocated and reserved bytes of the replay and S for its segments:
//
// allocated = A + w + a·A         reserved  = R + w + a·A + r·R   device    = R + w + a·A + r·R + c + g·S + d·R
const (
	// LibraryWorkspace is memory in bytes that libraries allocate through PyTorch's allocator and that recordings lack.
	// It is the same at every batch size.
	LibraryWorkspace Term = iota
	// ContextBytes is the size of the CUDA context with the memory that libraries allocate outside of the allocator.
	ContextBytes
	// Granularity is the number of bytes that the driver adds to each segment.
	Granularity
	// AllocatedSlack is the additional memory of real tensors as a share of the recorded allocated bytes.
	AllocatedSlack
	// ReservedSlack is the additional memory of the real cache as a share of the replayed reserved bytes.
	ReservedSlack
	// DeviceSlack is the additional device memory, without the context, as a share of the reserved bytes.
	DeviceSlack
	// CommunicationShare is the device memory of NCCL on one of several ranks, as a share of the estimate (see
	// [CommunicationOf]).
	CommunicationShare

	// NumTerms is the number of terms.
	NumTerms = iota
)

var termNames = [NumTerms]string{
	"library_workspace", "context", "granularity", "allocated_slack", "reserved_slack", "device_slack", "communication",
}

func (t Term) String() string {
	if int(t) < len(termNames) {
		return termNames[t]
	}
	return "unknown"
}

// Coefficients are the values of the planner that come from measurements.
type Coefficients struct {
	// Context is the size of the CUDA context, including the memory of PyTorch's libraries unless BareContext is set.
	Context Coefficient
	// BareContext reports whether the process, like vprof's own, loads none of PyTorch's libraries. Libraries is their
	// memory otherwise.
	BareContext bool
	Libraries   Coefficient
	// Communication is NCCL's device memory; zero for a single GPU.
	Communication Coefficient
	// Learned are the fitted terms; zero if not measured. The entry for [ContextBytes] is unused, see Context.
	Learned [NumTerms]Coefficient
	// Correlation is the correlation of two terms' errors, from -1 to 1. It is symmetric; its diagonal is unused.
	Correlation [NumTerms][NumTerms]float64
	// Allocated and Reserved are the errors of replays compared with PyTorch.
	Allocated, Reserved Residual
	// Compiled holds the errors of estimating a torch.compile step from its eager step.
	Compiled CompiledResiduals
}

// Term returns the coefficient of a term.
func (c *Coefficients) Term(t Term) Coefficient {
	if t == ContextBytes {
		return c.Context
	}
	return c.Learned[t]
}

// SetBareContext replaces the bare context by a measured one and keeps the memory of PyTorch's libraries.
func (c *Coefficients) SetBareContext(to Coefficient) {
	if !c.BareContext {
		to.Value += c.Libraries.Value
		to.StdErr = math.Hypot(to.StdErr, c.Libraries.StdErr)
		to.Source += ", without PyTorch's libraries; libraries: " + c.Libraries.Source
	}
	c.Context = to
}

// Set replaces the coefficient of a term.
func (c *Coefficients) Set(t Term, to Coefficient) {
	if t == ContextBytes {
		c.Context = to
		return
	}
	c.Learned[t] = to
}

// List returns the coefficients as named values in a fixed order: the context, the fitted terms, and the residuals. The
// value of a residual is the middle of its range; its standard error assumes a normal distribution with this range.
func (c Coefficients) List() []Coefficient {
	list := []Coefficient{c.Context}
	if c.Communication.Name != "" {
		list = append(list, c.Communication)
	}
	for t, k := range c.Learned {
		if Term(t) != ContextBytes && Term(t) != CommunicationShare && k.Name != "" {
			list = append(list, k)
		}
	}
	if c.Compiled.isUnknown() {
		list = append(list, c.Compiled.Allocated.coefficient("torch_compile"))
	}
	allocated, reserved := c.Allocated.coefficient("allocated_residual"), c.Reserved.coefficient("reserved_residual")
	allocated.Source = c.intervalSource()
	return append(list, allocated, reserved)
}

// intervalSource names the records on which the intervals are based, and how many of them are within their interval.
func (c *Coefficients) intervalSource() string { return ResidualSource(c.Allocated, c.Reserved) }

// ResidualSource names the records of two residuals of a group, and how many of them are within their interval.
func ResidualSource(allocated, reserved Residual) string {
	if reserved.SeparateGroup == "" {
		return allocated.Source()
	}
	if reserved.SeparateGroup == allocated.SeparateGroup && reserved.Records == allocated.Records {
		return fmt.Sprintf("%s, reserved bytes in %d", allocated.Source(), reserved.KeptRecords)
	}
	_, held, _ := strings.Cut(reserved.Source(), "; ")
	return allocated.Source() + "; reserved bytes " + held
}

// AddCommunication sets the memory of NCCL to an estimate, multiplied by the fitted share if there is one.
func (c *Coefficients) AddCommunication(assumed Coefficient) {
	if k := c.Learned[CommunicationShare]; k.Name != "" {
		assumed.Value, assumed.StdErr, assumed.Source = assumed.Value*k.Value, assumed.Value*k.StdErr, k.Source
	}
	c.Communication = assumed
}

// TermFactors are the factors of all terms in a total. The total is corrected by the sum of each term times its factor.
type TermFactors [NumTerms]float64

// AllocatedRow returns the factors of the terms in the allocated bytes of a sample.
func (s Sample) AllocatedRow() TermFactors {
	return TermFactors{LibraryWorkspace: 1, AllocatedSlack: float64(s.Allocated())}
}

// ReservedRow returns the factors of the terms in the reserved bytes of a sample.
func (s Sample) ReservedRow() TermFactors {
	r := s.AllocatedRow()
	r[ReservedSlack] = float64(s.Reserved)
	return r
}

// DeviceRow returns the factors of the terms in the device bytes of a sample.
func (s Sample) DeviceRow() TermFactors {
	r := s.ReservedRow()
	r[ContextBytes], r[Granularity], r[DeviceSlack] = 1, float64(s.Segments), float64(s.Reserved)
	return r
}

// correction returns the bytes that the terms add to a total, with their standard error.
func (c *Coefficients) correction(r TermFactors) (bytes int64, stderr float64) {
	var sum, variance float64
	for i, x := range r {
		a := c.Term(Term(i))
		sum += x * a.Value
		for j, y := range r {
			rho := c.Correlation[i][j]
			if i == j {
				rho = 1
			}
			variance += rho * x * a.StdErr * y * c.Term(Term(j)).StdErr
		}
	}
	return int64(math.Round(sum)), math.Sqrt(max(0, variance))
}

// estimate returns the estimate of a sample: corrected totals, their intervals, and components that sum to them. A
// correction is added to a related component: the workspace, the allocator's slack, or the context.
func (c *Coefficients) estimate(s Sample, held relativeErrors) Estimate {
	e := Estimate{Source: c.intervalSource()}
	allocated, allocatedErr := c.correction(s.AllocatedRow())
	reserved, reservedErr := c.correction(s.ReservedRow())
	device, deviceErr := c.correction(s.DeviceRow())
	copy(e.Components[:], s.Classes[:])
	e.Components[program.Workspace] += allocated
	e.Components[SlackComponent] = s.Slack() + reserved - allocated
	e.Components[Context] = device - reserved

	compiledAlloc, compiledReserved := c.Compiled.residualsFor(s)
	e.Allocated = widenedInterval(s.Allocated()+allocated, c.Allocated.plusIndependent(compiledAlloc), held.allocated)
	e.Allocated.Low, e.Allocated.High = max(0, e.Allocated.Low-s.Less), e.Allocated.High+s.More
	e.Allocated = e.Allocated.widenedBy(allocatedErr)
	plain := widenedInterval(s.Reserved+reserved, c.Reserved.plusIndependent(compiledReserved), held.reserved)
	plain.Low, plain.High = max(0, plain.Low-s.Below), plain.High+s.Above
	// Without allocated bytes there are no reserved bytes.
	e.Reserved = plain.widenedBy(reservedErr)
	e.Reserved.Low = max(e.Reserved.Low, e.Allocated.Low)
	plain.Low = max(plain.Low, e.Allocated.Low)
	if k := c.Communication; k.Name != "" {
		e.Components[Communication] = int64(math.Round(k.Value))
		device += e.Components[Communication]
		deviceErr = math.Hypot(deviceErr, k.StdErr)
	}
	e.Device = Interval{
		Value: e.Reserved.Value + e.Components[Context] + e.Components[Communication],
		Low:   plain.Low + max(0, int64(float64(device-reserved)-z95*deviceErr)),
		High:  plain.High + int64(math.Ceil(float64(device-reserved)+z95*deviceErr)),
	}
	return e
}

// widenedBy widens an interval by the standard error of a correction.
func (i Interval) widenedBy(stderr float64) Interval {
	return Interval{
		i.Value, max(0, int64(math.Floor(float64(i.Low)-z95*stderr))),
		int64(math.Ceil(float64(i.High) + z95*stderr)),
	}
}

// Totals are the corrected allocated, reserved and device bytes.
type Totals struct{ Allocated, Reserved, Device int64 }

// Totals returns the corrected bytes of a sample.
func (c *Coefficients) Totals(s Sample) Totals {
	allocated, _ := c.correction(s.AllocatedRow())
	reserved, _ := c.correction(s.ReservedRow())
	device, _ := c.correction(s.DeviceRow())
	return Totals{s.Allocated() + allocated, s.Reserved + reserved, s.Reserved + device}
}
