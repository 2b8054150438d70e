//go:build cuda && linux && cgo

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// A workload is the set of kernels that are loaded on a device.
type workload struct {
	module    cu.Module
	functions map[string]cu.Function
	// next, planned and args are kept from launch to launch, so as not to be made anew.
	next    kernels.Work
	planned []kernels.Launch
	args    []unsafe.Pointer
}

// load loads the kernels' cubins for the GPU. Without them, or if the driver rejects them, it compiles the PTX.
func (d *Device) load() (*workload, error) {
	capability := d.gpu.Capability
	ptx := func() string { return kernels.PTX(int(capability)) }
	if capability < kernels.MinCapability {
		return nil, &device.UnusableError{
			Device: d.name,
			Reason: fmt.Sprintf("%s is too old: it has compute capability %v, the kernels need %v", d.gpu.Product,
				capability, device.Capability(kernels.MinCapability)),
			Remedy: "simulate it with --device sim:" + d.gpu.Name,
		}
	}
	log := make([]byte, 4096)
	module, err := assembled(int(capability))
	var refused *CallError
	if errors.As(failure("", 0, err), &refused) && refused.Code != outOfMemory && !refused.Lost() {
		module, err = cu.LoadDataEx(ptx(), &cu.JITErrorLogBuffer{Buffer: log})
	}
	if err != nil {
		line, _, _ := bytes.Cut(log, []byte("\n"))
		return nil, d.moduleError(d.check("cuModuleLoadDataEx", 0, err), string(bytes.TrimRight(line, "\x00")))
	}
	d.defers(func() error { return d.check("cuModuleUnload", 0, module.Unload()) })
	return &workload{module: module, functions: map[string]cu.Function{}}, nil
}

// assembled loads the cubin for a compute capability. Without one it fails as the driver does.
func assembled(capability int) (cu.Module, error) {
	cubin := kernels.Cubin(capability)
	if cubin == "" {
		return cu.Module{}, cu.NoBinaryForGpu
	}
	return cu.LoadDataEx(cubin)
}

// moduleError reports why the kernels could not be loaded; log is the first line of the driver's compiler, if any.
func (d *Device) moduleError(err error, log string) error {
	var c *CallError
	if !errors.As(err, &c) {
		return err
	}
	switch c.Code {
	case outOfMemory:
		return d.noRoom("for the kernels")
	case noBinary, noCompiler, newerPTX, compilerOff:
		r := results[c.Code]
		return &device.UnusableError{Device: d.name, Reason: fmt.Sprintf("%s (%s)", r.text, r.name), Remedy: r.remedy}
	}
	if log != "" {
		err = fmt.Errorf("%w: %s", err, log)
	}
	return err
}

// Launch implements [device.Device]. An op may take several launches.
func (d *Device) Launch(k device.Kernel) error {
	w := d.work
	w.next = workOf(w.next, k)
	w.planned = w.planned[:0]
	if most := d.most(k.Precision); most > 0 {
		for _, part := range w.next.Split(most) {
			w.planned = part.Append(w.planned, int(d.gpu.Capability))
		}
	} else {
		w.planned = w.next.Append(w.planned, int(d.gpu.Capability))
	}
	for i := range w.planned {
		if err := d.start(&w.planned[i]); err != nil {
			return err
		}
		d.floor += d.floorOf(&w.planned[i], k.Precision)
	}
	return nil
}

var _ device.TimeFloor = (*Device)(nil)

// Floor returns the least possible time of all launches so far, for [device.TimeFloor].
func (d *Device) Floor() time.Duration { return d.floor }

// floorOf returns the least possible time of a launch. Caches may hold data of an earlier launch, at most 128 MiB (the
// data sheets have 126 MB for B200), and GPUs may clock a fifth higher than their data sheets' peaks assume. FP64 is
// computed in FP32.
func (d *Device) floorOf(l *kernels.Launch, p program.Precision) time.Duration {
	const caches, boost = 128 << 20, 1.25
	if p == program.FP64 {
		p = program.FP32
	}
	return time.Duration(float64(d.gpu.Roofline(l.FLOPs, max(0, l.Reads+l.Writes-caches), p)) / boost)
}

// start puts one launch into the queue.
func (d *Device) start(l *kernels.Launch) error {
	f, err := d.function(l.Name)
	if err != nil {
		return err
	}
	// A kernel takes one structure. cu knows only parameters of 8 bytes, but copies all of them into one piece of
	// memory, in order: given the fields one by one, the first parameter is where the structure begins.
	args := d.work.args[:0]
	for i := range l.Args {
		args = append(args, unsafe.Pointer(&l.Args[i]))
	}
	d.work.args = args
	d.queued = true
	err = f.Launch(
		int(l.Grid[0]), int(l.Grid[1]), int(l.Grid[2]), int(l.Block[0]), int(l.Block[1]), int(l.Block[2]),
		int(l.Shared), d.stream, args)
	if err != nil {
		return fmt.Errorf("kernel %s: %w", l.Name, d.check("cuLaunchKernel", 0, err))
	}
	return nil
}

// function finds a kernel in the module.
func (d *Device) function(name string) (cu.Function, error) {
	if f, ok := d.work.functions[name]; ok {
		return f, nil
	}
	f, err := d.work.module.Function(name)
	if err != nil {
		return f, d.moduleError(fmt.Errorf("kernel %s: %w", name, d.check("cuModuleGetFunction", 0, err)), "")
	}
	d.work.functions[name] = f
	return f, nil
}

var _ device.Verifier = (*Device)(nil)

// patterns is memory for the result of a verification.
type patterns struct {
	device  *Device
	verdict uint64
}

// verdictBytes is the size of that result.
const verdictBytes = 16

// Patterns returns a writer and checker of byte patterns, for [device.Verifier].
func (d *Device) Patterns() (device.Patterns, error) {
	if !d.runs {
		return nil, fmt.Errorf("%s: the driver cannot run kernels, so memory contents cannot be verified; leave out "+
			"--verify", d.name)
	}
	verdict, err := d.Get(verdictBytes)
	if err != nil {
		return nil, err
	}
	return &patterns{d, verdict}, nil
}

// Close frees the memory of the checks, for [device.Patterns].
func (p *patterns) Close() error { return p.device.Put(p.verdict, verdictBytes) }

// Write fills a range with a pattern, for [device.Patterns].
func (p *patterns) Write(r device.Range, seed uint64) error {
	l := kernels.Fill{To: kernels.Range(r), Seed: seed}.Launch()
	return p.device.start(&l)
}

// Verify checks that a range holds its pattern, for [device.Patterns].
func (p *patterns) Verify(r device.Range, seed uint64) error {
	d := p.device
	if err := d.Fill(p.verdict, 0, verdictBytes); err != nil {
		return err
	}
	l := kernels.Verify{Of: kernels.Range(r), Seed: seed, Result: p.verdict}.Launch()
	if err := d.start(&l); err != nil {
		return err
	}
	if err := d.Synchronize(); err != nil {
		return err
	}
	var verdict struct{ vectors, first uint64 }
	err := cu.MemcpyDtoH(unsafe.Pointer(&verdict), cu.DevicePtr(p.verdict), verdictBytes)
	if err != nil {
		return d.check("cuMemcpyDtoH", verdictBytes, err)
	}
	if verdict.vectors == 0 {
		return nil
	}
	const vector = 16
	return &device.PatternError{
		Range: r, Offset: vector * int64(^verdict.first), Bytes: min(vector*int64(verdict.vectors), r.Bytes),
	}
}
