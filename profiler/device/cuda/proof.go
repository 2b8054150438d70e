//go:build cuda && linux && cgo

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// The sizes of the memory with which an opened device is tested: a pattern, and each trial of trials.go.
const (
	trialSeed    = 0x5eed
	patternBytes = 5000 // with a last vector that is not whole
	trialBytes   = 8192 + 4*operandBytes
)

// prove runs kernels whose results are known. A driver that does not run them is simulated, whatever its name. Wrong
// results are a [*device.DefectError]: the GPU's measurements cannot be trusted.
func (d *Device) prove() (err error) {
	addr, err := d.getForTrial(trialBytes)
	if err != nil {
		return err
	}
	defer func() { err = d.join(err, d.Put(addr, trialBytes)) }()
	if d.runs, err = d.provePatterns(device.Range{Addr: addr, Bytes: patternBytes}); err != nil {
		return err
	}
	for _, t := range trials() {
		if err := d.proveTrial(t, addr+8192); err != nil {
			return err
		}
	}
	return nil
}

// getForTrial allocates memory to try kernels with, as Get does.
func (d *Device) getForTrial(bytes int64) (uint64, error) {
	addr, err := d.Get(bytes)
	if errors.Is(err, allocator.ErrOutOfMemory) {
		err = d.noRoom("to try the kernels")
	}
	return addr, err
}

// noRoom returns the error that the GPU lacks memory for an allocation of vprof itself.
func (d *Device) noRoom(what string) error {
	return &device.UnusableError{
		Device: d.name, Reason: "the GPU has no room " + what, Remedy: "other processes fill it (see nvidia-smi)",
	}
}

// provePatterns reports whether kernels run: the written pattern is found, and the pattern of another seed is not.
func (d *Device) provePatterns(r device.Range) (runs bool, err error) {
	verdict, err := d.Get(verdictBytes)
	if err != nil {
		return false, err
	}
	p := &patterns{d, verdict}
	defer func() { err = d.join(err, p.Close()) }()
	if err := p.Write(r, trialSeed); err != nil {
		return false, err
	}
	switch err := p.Verify(r, trialSeed+1); {
	case err == nil:
		return false, nil // whatever is there, it cannot be both patterns
	case !errors.As(err, new(*device.PatternError)):
		return false, err
	}
	if err := p.Verify(r, trialSeed); errors.As(err, new(*device.PatternError)) {
		return true, d.defect("a pattern written to memory is not found again: " + err.Error())
	} else if err != nil {
		return false, err
	}
	return true, nil
}

// proveTrial runs a kernel at an address and compares the result with the CPU's.
func (d *Device) proveTrial(t trial, addr uint64) error {
	at := make([]uint64, len(t.inputs)+1)
	for i := range at {
		at[i] = addr + uint64(i)*operandBytes
	}
	for i, values := range t.inputs {
		bytes := t.format.encode(values)
		if err := cu.MemcpyHtoD(cu.DevicePtr(at[i]), unsafe.Pointer(&bytes[0]), int64(len(bytes))); err != nil {
			return d.check("cuMemcpyHtoD", int64(len(bytes)), err)
		}
	}
	got := make([]byte, int64(len(t.want))*t.format.Size())
	out, n := at[len(t.inputs)], int64(len(got))
	l := t.launch(at, int(d.gpu.Capability))
	if err := d.join(d.Fill(out, 0xff, n), d.start(&l), d.Synchronize()); err != nil {
		return err
	}
	if err := cu.MemcpyDtoH(unsafe.Pointer(&got[0]), cu.DevicePtr(out), n); err != nil {
		return d.check("cuMemcpyDtoH", n, err)
	}
	wrong := t.wrong(got)
	if untouched := bytes.Count(got, got[:1]) == len(got); wrong == 0 || !d.runs && untouched {
		return nil
	}
	return d.defect(fmt.Sprintf("%d of %d elements of %s are wrong", wrong, len(t.want), t.name))
}

func (d *Device) defect(finding string) error {
	return &device.DefectError{Device: d.name, Finding: finding}
}

// simulatedDriver is the release reported by a simulated driver that can run kernels.
const simulatedDriver = "simulated driver"

// Simulated implements [device.Device]: kernels that do not run show a driver that only counts.
func (d *Device) Simulated() bool {
	return !d.runs || strings.Contains(d.driver.Release, simulatedDriver)
}

// warmUp runs kernels of every kind. A driver takes some memory at the first launch of a kernel, which belongs to the
// kernels and not to the first segments.
func (d *Device) warmUp() error {
	if d.Simulated() {
		return nil
	}
	const side, room = 64, 1 << 20
	addr, err := d.getForTrial(room)
	if err != nil {
		return err
	}
	for work := program.Elementwise; err == nil && work <= program.OptimizerUpdate; work++ {
		for _, p := range []program.Precision{program.FP32, program.TF32, program.FP16, program.BF16} {
			bytes := side * side * elementSize(p)
			k := device.Kernel{
				Work: work, Precision: p, FLOPs: 4 * side * side * side, M: side, N: side,
				K: side, Batch: 1,
			}
			for i := range int64(3) {
				k.Reads = append(k.Reads, device.Range{Addr: addr + uint64(i*bytes), Bytes: bytes})
			}
			k.Writes = []device.Range{{Addr: addr + uint64(3*bytes), Bytes: bytes}}
			if err = d.Launch(k); err != nil {
				break
			}
		}
	}
	err = d.join(err, d.Put(addr, room)) // waits
	d.floor = 0
	return err
}

func elementSize(p program.Precision) int64 {
	if p == program.FP16 || p == program.BF16 {
		return 2
	}
	return 4
}
