package distributed

// Action is the forward or the backward pass of a micro-batch on a stage of a pipeline.
type Action struct {
	// Stage is the index of the stage among the rank's stages.
	Stage    int
	Micro    int
	Backward bool
}

// Schedule returns the order of a rank's actions for some micro-batches, with one stage on each rank. "gpipe" runs all
// forward passes first (ScheduleGPipe). Otherwise backward begins as soon as a micro-batch returns from the last stage,
// and then forward and backward alternate (Schedule1F1B).
func Schedule(name string, micro, ranks, rank int) []Action {
	ahead := min(micro, ranks-rank)
	if name == "gpipe" {
		ahead = micro
	}
	var out []Action
	for i := range ahead {
		out = append(out, Action{Micro: i})
	}
	for i := range micro {
		out = append(out, Action{Micro: i, Backward: true})
		if next := ahead + i; next < micro {
			out = append(out, Action{Micro: next})
		}
	}
	return out
}

// Interleaved returns the order of a rank with several stages, whose numbers differ by the number of ranks
// (ScheduleInterleaved1F1B): micro-batches pass through the ranks in rounds. [Rounds] must divide their number.
func Interleaved(micro, ranks, rank, stages int) []Action {
	round := micro / Rounds(micro, ranks)
	all := micro * stages
	warmup := min((stages-1)*round+2*(ranks-1-rank), all)
	forwards, backwards := make([]int, stages), make([]int, stages) // micro-batches so far
	var out []Action
	forward := func(step int) {
		s := step / round % stages
		out = append(out, Action{Stage: s, Micro: forwards[s]})
		forwards[s]++
	}
	backward := func(step int) {
		s := stages - 1 - (step-warmup)/round%stages
		out = append(out, Action{Stage: s, Micro: backwards[s], Backward: true})
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

// Rounds returns the number of rounds of micro-batches through an interleaved pipeline.
func Rounds(micro, ranks int) int { return max(1, micro/ranks) }
