package planner

import (
	"fmt"
	"math"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/host"
	"github.com/vprof/vprof/profiler/program"
)

// Interval is an estimated value with its 95 % interval.
type Interval struct{ Value, Low, High int64 }

// Component is a part of the device bytes: a class of tensors, the allocator's slack, or
// the CUDA context. Components sum to the device bytes.
type Component uint8

// The components: the classes of tensors in a program, then components that are not tensors.
const (
	// SlackComponent is the reserved memory beyond the allocated bytes.
	SlackComponent Component = program.NumClasses + iota
	// Context is the memory of CUDA before the first tensor.
	Context
	// Paged is optimizer state in managed memory, as far as it fits on the GPU.
	Paged
	// Communication is the memory of NCCL, with several ranks.
	Communication

	// NumComponents is the number of components.
	NumComponents = program.NumClasses + 4
)

func (c Component) String() string {
	switch {
	case c < program.NumClasses:
		return program.Class(c).String()
	case c == SlackComponent:
		return "allocator slack"
	case c == Context:
		return "context"
	case c == Paged:
		return "paged state"
	case c == Communication:
		return "communication"
	}
	return "unknown"
}

// Estimate is the estimated memory of a training step at one batch size on one GPU, in bytes.
type Estimate struct {
	Batch int
	// Components sum to Device.Value; the tensor classes among them sum to Allocated.Value, these and the slack to
	// Reserved.Value.
	Components [NumComponents]int64
	Allocated  Interval
	Reserved   Interval
	Device     Interval
	// Paged is the part of Device in managed memory, which the driver moves to the host when the GPU is full.
	Paged Interval
	// Host is the host memory; zero if unknown.
	Host      host.Estimate
	PeakPhase string
	// Source names the records on which the intervals are based, and the share of them within their interval.
	Source string
	// Interpolated reports whether the batch size was interpolated and not replayed.
	Interpolated bool
	Verdict      Verdict
}

// Verdict is the result of comparing an estimate with the GPU's memory.
type Verdict string

const (
	// Fits means that even the upper end of the device bytes fits.
	Fits Verdict = "fits"
	// TightFit means that the upper end of the device bytes does not fit, but the allocated bytes alone do. PyTorch
	// then releases cached memory and may or may not succeed.
	TightFit Verdict = "tight"
	// StepNotRecorded means that the need depends on torch.compile, and no compiled step was recorded.
	StepNotRecorded Verdict = "not known without a recording"
	// DoesNotFit means that not even the lower end of the allocated bytes fits.
	DoesNotFit Verdict = "does not fit"
)

// Planner estimates the memory of a training step on a GPU, from a curve of replays and the GPU's coefficients.
type Planner struct {
	Curve        *Curve
	Coefficients Coefficients
	// Memory is the GPU's total as the driver reports it, in bytes.
	Memory int64
}

// Estimate returns the estimate at one batch size.
func (p *Planner) Estimate(batch int) (Estimate, error) {
	s, exact, err := p.Curve.Interpolate(batch)
	if err != nil {
		return Estimate{}, err
	}
	var held relativeErrors
	if !exact {
		held = p.Curve.held
	}
	e := p.Coefficients.estimate(s, held)
	e.Batch, e.PeakPhase, e.Interpolated = batch, s.PeakPhase, !exact
	e.Verdict = p.verdict(e)
	e.addPaging(s.ManagedBytes, p.Memory)
	if s.Host.Processes > 0 {
		e.Host = s.Host.Estimate(e.Paged.Value, e.Components[program.Weights]+e.Components[Context], e.Device.High)
		switch {
		case e.Host.ExceedsCertainly():
			e.Verdict = DoesNotFit
		case e.Host.Exceeds() && e.Verdict == Fits:
			e.Verdict = TightFit
		}
	}
	return e, nil
}

// addPaging adds managed memory, which the driver keeps on the GPU while there is room. No verdict depends on it.
func (e *Estimate) addPaging(managed, memory int64) {
	within := func(device int64) int64 { return min(managed, max(0, memory-device)) }
	e.Paged = Interval{Value: within(e.Device.Value), Low: within(e.Device.Low), High: within(e.Device.High)}
	e.Components[Paged] = e.Paged.Value
	e.Device.Value += e.Paged.Value
	e.Device.Low += e.Paged.Low
	e.Device.High += e.Paged.High
}

func (p *Planner) verdict(e Estimate) Verdict {
	switch {
	case e.Device.High <= p.Memory:
		return Fits
	case e.Allocated.Low+e.Device.Low-e.Reserved.Low > p.Memory:
		return DoesNotFit
	case p.Coefficients.Compiled.isUnknown():
		return StepNotRecorded
	default:
		return TightFit
	}
}

// z95 is the number of standard errors on either side of the mean that contain 95 % of a normal distribution.
const z95 = 1.96

// widenedInterval returns a value's interval from the quantiles of its relative residual and interpolation error.
func widenedInterval(value int64, r Residual, interpolation float64) Interval {
	v := float64(value)
	return Interval{
		Value: value,
		Low:   max(0, value-int64(math.Ceil(v*(interpolation+max(0, -r.Low))))),
		High:  value + int64(math.Ceil(v*(interpolation+max(0, r.High)))),
	}
}

// Coefficient is a number that calibration can correct.
type Coefficient struct {
	Name   string
	Value  float64
	StdErr float64
	Source string
}

func (r Residual) coefficient(name string) Coefficient {
	k := Coefficient{Name: name, Value: (r.Low + r.High) / 2, StdErr: (r.High - r.Low) / 2 / z95, Source: r.Source()}
	return k
}

// plusIndependent returns the residual of two independent causes, whose ranges are added. How often their sum was
// within the range was not counted.
func (r Residual) plusIndependent(other Residual) Residual {
	r.Low, r.High = r.Low+other.Low, r.High+other.High
	if other != (Residual{}) {
		r.KeptRecords, r.SeparateGroup = 0, ""
	}
	return r
}

// contextStdErr is the standard error of a context that was not measured, in bytes. By published values, CUDA's
// libraries load 50 to 400 MiB of kernels in the first steps; half of that range is two standard errors.
const contextStdErr = 90 << 20

// LibrariesOf returns the coefficient of the bytes that PyTorch's libraries add to a bare context. If they were never
// measured, it is zero with the error of the whole context.
func LibrariesOf(gpu device.GPU) Coefficient {
	return Coefficient{
		Name: "library_bytes:" + gpu.Name, Value: float64(gpu.Libraries), StdErr: contextStdErr,
		Source: gpu.ContextSource,
	}
}

// ContextOf returns the coefficient of a GPU's context from the catalog.
func ContextOf(gpu device.GPU) Coefficient {
	return Coefficient{
		Name: "context_bytes:" + gpu.Name, Value: float64(gpu.Context), StdErr: contextStdErr,
		Source: gpu.ContextSource,
	}
}

// EstimateOfRun returns the estimate for a step that ran and reserved these bytes on a GPU without a measured context.
func EstimateOfRun(gpu device.GPU, reserved int64) Estimate {
	e := Estimate{Reserved: Interval{reserved, reserved, reserved}}
	e.Device = Interval{reserved + gpu.Context, reserved + gpu.Context, reserved + gpu.Context}.widenedBy(contextStdErr)
	return e
}

// The memory of NCCL on a GPU, in bytes. Channels form a ring or tree over the links: NVLink has two dozen, PCIe a few.
const (
	ncclBuffer     = 4 << 20 // NCCL_BUFFSIZE, for each connection of a channel
	ncclOtherBytes = 100 << 20
	nvlinkSpeed    = 64e9 // bytes per second from which links are no PCIe
	nvlinkChannel  = 24
	pcieChannels   = 8
	ringNeighbors  = 2
)

// CommunicationOf returns the coefficient of the memory that NCCL's communicators use on a GPU, outside of the
// allocator. Published values are from 0.3 to 1.6 GB per communicator, so the error is as large as the value.
func CommunicationOf(gpu device.GPU, communicators int) Coefficient {
	channels := pcieChannels
	if gpu.LinkBandwidth > nvlinkSpeed {
		channels = nvlinkChannel
	}
	bytes := float64(ncclOtherBytes + communicators*channels*ringNeighbors*ncclBuffer)
	return Coefficient{
		Name: "nccl_bytes:" + gpu.Name, Value: bytes, StdErr: bytes,
		Source: fmt.Sprintf("assumption: 4 MiB for each of %d connections of %d channels of %d communicators, and "+
			"100 MiB; published totals are 0.3 to 1.6 GB a communicator (NCCL issues 864, 1685)", ringNeighbors,
			channels, communicators),
	}
}
