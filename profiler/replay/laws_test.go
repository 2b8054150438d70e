package replay_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// drawProgram draws a program in which every buffer is freed at most once and after its allocation.
func drawProgram(t *rapid.T) *program.Program {
	s := newScript()
	var live []string
	for i := range rapid.IntRange(1, 150).Draw(t, "steps") {
		switch op := rapid.IntRange(0, 20).Draw(t, "op"); {
		case op < 10:
			name := fmt.Sprint(i)
			bytes := rapid.OneOf(rapid.Int64Range(1, 3*mib), rapid.Int64Range(1, 40*mib)).Draw(t, "bytes")
			s.alloc(name, rapid.SampledFrom([]program.Class{program.Weights, program.Activations, program.Workspace}).
				Draw(t, "class"), bytes)
			live = append(live, name)
		case op < 18:
			for range min(len(live), rapid.IntRange(1, 4).Draw(t, "frees")) {
				j := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				s.free(live[j])
				live = slices.Delete(live, j, j+1)
			}
		case op == 18:
			s.emit(program.EmptyCache, 0)
		default:
			s.mark(i, "phase")
		}
	}
	return &s.Program
}

func drawConfig(t *rapid.T) *allocator.Config {
	config, err := allocator.ParseConfig(rapid.SampledFrom([]string{
		"", "expandable_segments:True", "max_split_size_mb:20", "roundup_power2_divisions:4",
		"garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
	}).Draw(t, "config"))
	require.NoError(t, err)
	return &config
}

// TestRunLaws: classes sum to the peak; classes and slack sum to what is allocated; the highest phase is the highest of
// all; the timeline never gets above; an ideal heap needs what is requested; an OOM tells the last state; and a device
// has everything back in the end.
func TestRunLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		memory := allocator.NewMemory(rapid.Int64Range(40, 400).Draw(t, "MiB")*mib, 0)
		run, err := replay.Replay(t.Context(), p, replay.Options{Config: drawConfig(t), Source: memory, Timeline: true})
		require.NoError(t, err)
		require.Zero(t, memory.Used())

		peak := run.Peak
		require.Equal(t, run.Max.Allocated, peak.Usage.Allocated)
		require.Equal(t, peak.Usage.Allocated, peak.Allocated.Total())
		require.Equal(t, peak.Usage.Allocated, peak.Allocated.Total())
		require.LessOrEqual(t, peak.Requested.Total(), peak.Allocated.Total())
		require.LessOrEqual(t, peak.Usage.Reserved, run.Max.Reserved)

		var highest replay.Usage
		var live, most int64
		for _, point := range run.Timeline {
			u := point.Usage
			highest = replay.Usage{
				Requested: max(highest.Requested, u.Requested), Allocated: max(highest.Allocated, u.Allocated),
				Active: max(highest.Active, u.Active), Reserved: max(highest.Reserved, u.Reserved),
			}
			switch in := p.Instructions[point.Instruction]; in.Kind {
			case program.Alloc:
				live += p.Buffers[in.Arg].Bytes
				most = max(most, live)
			case program.Free:
				live -= p.Buffers[in.Arg].Bytes
			}
			require.Equal(t, live, u.Requested)
			if point.Instruction == peak.Instruction {
				require.Equal(t, peak.Usage, u)
			}
		}
		// Between two instructions, while a retry waits for memory, more may have been reserved.
		require.LessOrEqual(t, highest.Reserved, run.Max.Reserved)
		highest.Reserved = run.Max.Reserved
		require.Equal(t, highest, run.Max)
		require.Equal(t, most, run.Max.Requested)
		require.LessOrEqual(t, run.Max.Requested, run.Max.Allocated)
		require.LessOrEqual(t, run.Max.Allocated, run.Max.Reserved)

		marks := run.Phases
		if len(p.Instructions) > 0 && p.Instructions[len(p.Instructions)-1].Kind == program.MarkPhase ||
			run.OOM != nil {
			require.Equal(t, run.Max.Allocated, peakPhase(run).Max.Allocated)
			require.Equal(t, run.Max.Reserved, slices.MaxFunc(marks, func(a, b replay.Phase) int {
				return int(a.Max.Reserved - b.Max.Reserved)
			}).Max.Reserved)
		}
		for _, m := range marks {
			require.LessOrEqual(t, m.End.Allocated, m.Max.Allocated)
			require.LessOrEqual(t, m.Max.Allocated, m.Max.Reserved)
		}
		if run.OOM != nil {
			require.Equal(t, marks[len(marks)-1].End, run.OOM.At.Usage)
			require.Equal(t, "oom", marks[len(marks)-1].Name)
		}
	})
}

// TestOrderOfFreesDoesNotMatterToWhatIsRequested: reversing every row of frees
// that follow each other changes addresses, not requested bytes.
func TestOrderOfFreesDoesNotMatterToWhatIsRequested(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		q := *p
		q.Instructions = slices.Clone(p.Instructions)
		for i := 0; i < len(q.Instructions); i++ {
			from := i
			for i < len(q.Instructions) && q.Instructions[i].Kind == program.Free {
				i++
			}
			slices.Reverse(q.Instructions[from:i])
		}
		a, err := replay.Replay(t.Context(), p, replay.Options{})
		require.NoError(t, err)
		b, err := replay.Replay(t.Context(), &q, replay.Options{})
		require.NoError(t, err)
		require.Equal(t, a.Max.Requested, b.Max.Requested)
		require.Equal(t, a.Stats.RequestedBytes, b.Stats.RequestedBytes)
	})
}

// TestReservedPeakIsEnoughMemory: a GPU with just the memory that a program
// reserves without a limit runs it in just the same way.
func TestReservedPeakIsEnoughMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		free, err := replay.Replay(t.Context(), p, replay.Options{})
		require.NoError(t, err)
		exact, err := replay.Replay(t.Context(), p, replay.Options{Total: max(1, free.Max.Reserved)})
		require.NoError(t, err)
		require.Nil(t, exact.OOM, "what is reserved without limit is enough")
		require.Equal(t, free, exact)
	})
}
