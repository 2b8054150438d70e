package distributed

// Action is the forward or the backward pass of a micro-batch on a stage of a pipeline.
type Action struct {
	Micro    int
	Backward bool
}

// Schedule is the order of a stage's actions for some micro-batches: "gpipe" has all
// forward passes first (ScheduleGPipe), others begin backward as soon as a micro-batch
// comes back from the last stage, and then take turns (Schedule1F1B).
func Schedule(name string, micro, stages, stage int) []Action {
	ahead := min(micro, stages-stage)
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
