//go:build cuda && linux && cgo

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// What a device is tried with when it is opened: a pattern, and products of
// square matrices of whole numbers, whose results are exact in every format.
const (
	trialSeed    = 0x5eed
	patternBytes = 5000 // with a last vector that is not whole
	trialSide    = 48
	matrixBytes  = trialSide * trialSide * 4
	trialBytes   = 8192 + 3*matrixBytes
)

// prove has kernels run whose results are known. A driver that runs none is a
// simulated one, however it calls itself. A GPU that runs them and comes to
// other results is a [*device.DefectError]: nothing it says can be trusted.
func (d *Device) prove() (err error) {
	addr, err := d.Get(trialBytes)
	if errors.Is(err, allocator.ErrOutOfMemory) {
		return &device.UnusableError{Device: d.name, Reason: "the board has no room to try the kernels", Remedy: "other processes fill it (see nvidia-smi)"}
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Put(addr, trialBytes)) }()
	if d.runs, err = d.provePatterns(device.Range{Addr: addr, Bytes: patternBytes}); err != nil {
		return err
	}
	for _, t := range []kernels.Type{kernels.F32, kernels.F16} {
		if err := d.proveProduct(t, addr+8192); err != nil {
			return err
		}
	}
	return nil
}

// provePatterns tells whether kernels run: a pattern is found again, and that
// of another seed is not.
func (d *Device) provePatterns(r device.Range) (runs bool, err error) {
	verdict, err := d.Get(verdictBytes)
	if err != nil {
		return false, err
	}
	p := &patterns{d, verdict}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.Write(r, trialSeed); err != nil {
		return false, err
	}
	var differs *device.PatternError
	switch err := p.Verify(r, trialSeed+1); {
	case err == nil:
		return false, nil // whatever is there, it cannot be both patterns
	case !errors.As(err, &differs):
		return false, err
	}
	if err := p.Verify(r, trialSeed); errors.As(err, &differs) {
		return true, d.defect("a pattern written to memory is not found again: " + err.Error())
	} else if err != nil {
		return false, err
	}
	return true, nil
}

// trialValue is an element of the matrices: -3 to 3, by place and matrix.
func trialValue(matrix, i int) int { return (i*(7+6*matrix)+i/trialSide*5+matrix)%7 - 3 }

// encode writes a small whole number in a format, little endian.
func encode(t kernels.Type, to []byte, v int) {
	bits := math.Float32bits(float32(v))
	if t == kernels.F32 {
		binary.LittleEndian.PutUint32(to, bits)
		return
	}
	half := bits >> 16 & 0x8000
	if v != 0 { // the exponent's bias is 127 there, 15 here
		half |= (bits>>23&0xff-112)<<10 | bits>>13&0x3ff
	}
	binary.LittleEndian.PutUint16(to, uint16(half))
}

// product is the matrices of a trial as they lie in memory: both operands, and
// the first times the second transposed.
func product(t kernels.Type) (m [3][]byte) {
	size := int(t.Size())
	for i := range m {
		m[i] = make([]byte, trialSide*trialSide*size)
	}
	for i := range trialSide * trialSide {
		encode(t, m[0][i*size:], trialValue(0, i))
		encode(t, m[1][i*size:], trialValue(1, i))
		sum := 0
		for k := range trialSide {
			sum += trialValue(0, i/trialSide*trialSide+k) * trialValue(1, i%trialSide*trialSide+k)
		}
		encode(t, m[2][i*size:], sum)
	}
	return m
}

// proveProduct multiplies at an address and compares the result with the CPU's.
func (d *Device) proveProduct(t kernels.Type, addr uint64) error {
	m := product(t)
	n := int64(len(m[0]))
	at := func(i int) uint64 { return addr + uint64(i)*matrixBytes }
	for i := range 2 {
		if err := cu.MemcpyHtoD(cu.DevicePtr(at(i)), unsafe.Pointer(&m[i][0]), n); err != nil {
			return d.check("cuMemcpyHtoD", n, err)
		}
	}
	matrix := func(i int) kernels.Matrix { return kernels.Matrix{Addr: at(i), Row: trialSide} }
	l := kernels.GEMM{Type: t, A: matrix(0), B: matrix(1), C: matrix(2), M: trialSide, N: trialSide, K: trialSide, Batch: 1}.Launch(int(d.gpu.Capability))
	if err := errors.Join(d.Fill(at(2), 0xff, n), d.start(&l), d.Synchronize()); err != nil {
		return err
	}
	got := make([]byte, n)
	if err := cu.MemcpyDtoH(unsafe.Pointer(&got[0]), cu.DevicePtr(at(2)), n); err != nil {
		return d.check("cuMemcpyDtoH", n, err)
	}
	untouched := bytes.Count(got, got[:1]) == len(got)
	if bytes.Equal(got, m[2]) || (!d.runs && untouched) {
		return nil
	}
	wrong := 0
	for i := 0; i < len(got); i += int(t.Size()) {
		if !bytes.Equal(got[i:i+int(t.Size())], m[2][i:i+int(t.Size())]) {
			wrong++
		}
	}
	return d.defect(fmt.Sprintf("%d of %d elements of a product in %v are wrong", wrong, trialSide*trialSide, t))
}

func (d *Device) defect(finding string) error {
	return &device.DefectError{Device: d.name, Finding: finding}
}

// simulatedDriver is what the release of a driver says that simulates and runs
// kernels all the same.
const simulatedDriver = "simulated driver"

// Simulated implements [device.Device]: kernels that do not run show a driver
// that only counts.
func (d *Device) Simulated() bool {
	return !d.runs || strings.Contains(d.driver.Release, simulatedDriver)
}

// warmUp has kernels of every kind run, since a driver takes some memory at the
// first launch of a kernel: it belongs to them and not to the first segments.
func (d *Device) warmUp() error {
	if d.Simulated() {
		return nil
	}
	const side, room = 64, 1 << 20
	addr, err := d.Get(room)
	if errors.Is(err, allocator.ErrOutOfMemory) {
		return &device.UnusableError{Device: d.name, Reason: "the board has no room to try the kernels", Remedy: "other processes fill it (see nvidia-smi)"}
	} else if err != nil {
		return err
	}
	var errs []error
	for work := program.Elementwise; work <= program.OptimizerUpdate; work++ {
		for _, p := range []program.Precision{program.FP32, program.TF32, program.FP16, program.BF16} {
			bytes := side * side * elementSize(p)
			k := device.Kernel{Work: work, Precision: p, FLOPs: 4 * side * side * side, M: side, N: side, K: side, Batch: 1}
			for i := range int64(3) {
				k.Reads = append(k.Reads, device.Range{Addr: addr + uint64(i*bytes), Bytes: bytes})
			}
			k.Writes = []device.Range{{Addr: addr + uint64(3*bytes), Bytes: bytes}}
			if errs = append(errs, d.Launch(k)); errs[len(errs)-1] != nil {
				break
			}
		}
	}
	errs = append(errs, d.Put(addr, room)) // waits
	d.floor = 0
	return errors.Join(errs...)
}

func elementSize(p program.Precision) int64 {
	if p == program.FP16 || p == program.BF16 {
		return 2
	}
	return 4
}
