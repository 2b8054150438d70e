package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// usage is how many bytes are allocated when a phase ends, at most while it lasts, and at most since the program began.
type usage struct{ end, peak, soFar int64 }

// phases returns the usages of all phases of a program, whose buffers take what size says. Of a
// phase that a step has several times they are the last end and the highest peak.
func phases(p *program.Program, size func(program.Buffer) int64) map[program.Phase]usage {
	all := map[program.Phase]usage{}
	var now, peak, soFar int64
	for _, i := range p.Instructions {
		switch i.Kind {
		case program.Alloc:
			now += size(p.Buffers[i.Arg])
			peak = max(peak, now)
		case program.Free:
			now -= size(p.Buffers[i.Arg])
		case program.MarkPhase:
			phase := p.Phases[i.Arg]
			soFar = max(soFar, peak)
			all[phase] = usage{now, max(peak, all[phase].peak), soFar}
			peak = now
		}
	}
	return all
}

// growth returns the largest number of bytes that the second step of a case on an A100 asks for
// beyond those before it: in its forward pass with the loss, and in backward.
func growth(t *testing.T, m models.Model, c models.Case) (forward, backward int64) {
	t.Helper()
	r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
	require.NoError(t, err)
	all := phases(r.Program, asRequested)
	before := all[phase(0, "step_end")].end
	return max(all[phase(1, "forward")].peak, all[phase(1, "loss")].peak) - before,
		all[phase(1, "backward")].peak - before
}

// asRequested returns the size that was asked for.
func asRequested(b program.Buffer) int64 { return b.Bytes }

// inBlocks returns the size of the block of the caching allocator.
func inBlocks(b program.Buffer) int64 { return ceil.Multiple(b.Bytes, 512) }

// inBlocksBesideWorkspaces returns the block of every buffer but workspaces.
func inBlocksBesideWorkspaces(b program.Buffer) int64 {
	if b.Class == program.Workspace {
		return 0
	}
	return inBlocks(b)
}

// phase returns a phase of a step; -1 is what comes before the first.
func phase(step int, name string) program.Phase { return program.Phase{Step: step, Name: name} }

// secondStep returns the peaks of its forward pass and of backward, in blocks.
func secondStep(p *program.Program) (forward, backward int64) {
	all := phases(p, inBlocks)
	return all[phase(1, "forward")].peak, all[phase(1, "backward")].peak
}

// phasePeak returns the most that is requested at a time in a phase of a step.
func phasePeak(p *program.Program, step int, name string) int64 {
	return phases(p, asRequested)[phase(step, name)].peak
}
