package replay

import (
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// bufferVerifier checks memory with patterns. Each allocation is filled with its own pattern, which must be unchanged
// when it is freed.
type bufferVerifier struct {
	patterns device.Patterns
	verified int
}

func (v *bufferVerifier) begin(e liveAllocation) error {
	return v.patterns.Write(device.Range{Addr: e.addr, Bytes: e.bytes}, e.number)
}

func (v *bufferVerifier) end(e liveAllocation) error {
	if err := v.patterns.Verify(device.Range{Addr: e.addr, Bytes: e.bytes}, e.number); err != nil {
		return err
	}
	v.verified++
	return nil
}

// unusedToucher writes and reads the buffers that no op uses: workspaces of libraries and reductions, data from the
// host. All memory is then really used, which detects a driver that overcommits.
type unusedToucher struct {
	device  device.Device
	program *program.Program
	// written and read are the numbers of bytes of each buffer, from its start, that ops write and read.
	written, read []int64
}

func newTouching(d device.Device, p *program.Program) *unusedToucher {
	n := len(p.Buffers)
	t := &unusedToucher{device: d, program: p, written: make([]int64, n), read: make([]int64, n)}
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

func (t *unusedToucher) begin(e liveAllocation) error {
	done, bytes := t.written[e.buffer], t.program.Buffers[e.buffer].Bytes
	if done >= bytes {
		return nil
	}
	return t.device.Fill(e.addr+uint64(done), 0, bytes-done)
}

func (t *unusedToucher) end(e liveAllocation) error {
	done, bytes := t.read[e.buffer], t.program.Buffers[e.buffer].Bytes
	if done >= bytes {
		return nil
	}
	return t.device.Launch(device.Kernel{
		Work:  program.Elementwise,
		Reads: []device.Range{{Addr: e.addr + uint64(done), Bytes: bytes - done}},
	})
}
