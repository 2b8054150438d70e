package distributed

// PipelineAction is a forward or backward pass of one micro-batch on one pipeline stage.
type PipelineAction struct {
	// Stage is the index of the stage among the rank's stages.
	Stage    int
	Micro    int
	Backward bool
}

// PipelineSchedule returns the order of the actions of a rank with one stage. "gpipe" runs all forward passes first
// (ScheduleGPipe). Otherwise the backward pass of a micro-batch begins as soon as it returns from the last stage, and
// then forward and backward alternate (Schedule1F1B).
func PipelineSchedule(name string, micro, ranks, rank int) []PipelineAction {
	ahead := min(micro, ranks-rank)
	if name == "gpipe" {
		ahead = micro
	}
	var out []PipelineAction
	for i := range ahead {
		out = append(out, PipelineAction{Micro: i})
	}
	for i := range micro {
		out = append(out, PipelineAction{Micro: i, Backward: true})
		if next := ahead + i; next < micro {
			out = append(out, PipelineAction{Micro: next})
		}
	}
	return out
}

// InterleavedSchedule returns the order of the actions of a rank with several stages, whose indices differ by the
// number of ranks (ScheduleInterleaved1F1B). Micro-batches pass through the ranks in rounds. [MicroBatchRounds] must
// divide the number of micro-batches.
func InterleavedSchedule(micro, ranks, rank, stages int) []PipelineAction {
	round := micro / MicroBatchRounds(micro, ranks)
	all := micro * stages
	warmup := min((stages-1)*round+2*(ranks-1-rank), all)
	forwards, backwards := make([]int, stages), make([]int, stages) // micro-batches so far
	var out []PipelineAction
	forward := func(step int) {
		s := step / round % stages
		out = append(out, PipelineAction{Stage: s, Micro: forwards[s]})
		forwards[s]++
	}
	backward := func(step int) {
		s := stages - 1 - (step-warmup)/round%stages
		out = append(out, PipelineAction{Stage: s, Micro: backwards[s], Backward: true})
		backwards[s]++
	}
	for step := range all + warmup {
		if step < all {
			forward(step)
		}
		if step >= warmup {
			backward(step)
		}
	}
	return out
}

// MicroBatchRounds returns the number of rounds in which micro-batches pass through an interleaved pipeline.
func MicroBatchRounds(micro, ranks int) int { return max(1, micro/ranks) }
