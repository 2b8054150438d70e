package planner

import (
	"fmt"

	"github.com/vprof/vprof/profiler/device"
)

// contextStdErr is the standard error of a context that nobody measured, in
// bytes. Beside the context itself, CUDA's libraries load 50 to 400 MiB of
// kernels in the first steps, by published figures; half that spread is what
// two standard errors must hold.
const contextStdErr = 90 << 20

// ContextOf is the coefficient of a board's context from the catalog.
func ContextOf(gpu device.GPU) Coefficient {
	return Coefficient{
		Name: "context_bytes:" + gpu.Name, Value: float64(gpu.Context), StdErr: contextStdErr,
		Source: gpu.ContextSource,
	}
}

// Run is the estimate of a step that ran on a board whose context nobody measured, of the bytes
// that it reserved.
func Run(gpu device.GPU, reserved int64) Estimate {
	e := Estimate{Reserved: Interval{reserved, reserved, reserved}}
	e.Device = Interval{reserved + gpu.Context, reserved + gpu.Context, reserved + gpu.Context}.by(contextStdErr)
	return e
}

// What NCCL takes on a board, in bytes. Channels are those of a ring or tree over the
// links: NVLink has two dozen, PCIe a few.
const (
	ncclBuffer    = 4 << 20 // NCCL_BUFFSIZE, for each connection of a channel
	ncclRest      = 100 << 20
	nvlinkSpeed   = 64e9 // bytes per second from which links are no PCIe
	nvlinkChannel = 24
	pcieChannels  = 8
	ringNeighbors = 2
)

// CommunicationOf is the coefficient of what NCCL's communicators take on a board
// outside the allocator. Published figures are from 0.3 to 1.6 GB a communicator, so
// that its error is as large as itself.
func CommunicationOf(gpu device.GPU, communicators int) Coefficient {
	channels := pcieChannels
	if gpu.Link > nvlinkSpeed {
		channels = nvlinkChannel
	}
	bytes := float64(ncclRest + communicators*channels*ringNeighbors*ncclBuffer)
	return Coefficient{
		Name: "nccl_bytes:" + gpu.Name, Value: bytes, StdErr: bytes,
		Source: fmt.Sprintf("assumption: 4 MiB for each of %d connections of %d channels of %d communicators, and "+
			"100 MiB; published totals are 0.3 to 1.6 GB a communicator (NCCL issues 864, 1685)", ringNeighbors,
			channels, communicators),
	}
}
