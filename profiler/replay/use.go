package replay

import (
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// bufferVerifier checks memory with patterns: each allocation is filled with a pattern of
// its own, which must still be there when it is freed.
type bufferVerifier struct {
	patterns device.Patterns
	verified int
}

func (v *bufferVerifier) begin(e entry) error {
	return v.patterns.Write(device.Range{Addr: e.addr, Bytes: e.bytes}, e.number)
}

func (v *bufferVerifier) end(e entry) error {
	if err := v.patterns.Verify(device.Range{Addr: e.addr, Bytes: e.bytes}, e.number); err != nil {
		return err
	}
	v.verified++
	return nil
}

// toucher writes and reads the buffers that no op uses: libraries' workspaces, scratch of reductions, data from the
// host. All memory is then really used, which exposes a driver that overcommits.
type toucher struct {
	device  device.Device
	program *program.Program
	// written and read are how many bytes of each buffer some op writes and reads, from its beginning.
	written, read []int64
}

func newTouching(d device.Device, p *program.Program) *toucher {
	t := &toucher{device: d, program: p, written: make([]int64, len(p.Buffers)), read: make([]int64, len(p.Buffers))}
	note := func(most []int64, s program.Span) {
		for _, o := range p.Operands[s.From:s.To] {
			most[o.Buffer] = max(most[o.Buffer], o.Bytes)
		}
	}
	for i := range p.Ops {
		note(t.written, p.Ops[i].Writes)
		note(t.read, p.Ops[i].Reads)
	}
	return t
}

func (t *toucher) begin(e entry) error {
	done, bytes := t.written[e.buffer], t.program.Buffers[e.buffer].Bytes
	if done >= bytes {
		return nil
	}
	return t.device.Fill(e.addr+uint64(done), 0, bytes-done)
}

func (t *toucher) end(e entry) error {
	done, bytes := t.read[e.buffer], t.program.Buffers[e.buffer].Bytes
	if done >= bytes {
		return nil
	}
	return t.device.Launch(device.Kernel{
		Work:  program.Elementwise,
		Reads: []device.Range{{Addr: e.addr + uint64(done), Bytes: bytes - done}},
	})
}
