package trace

// ranks is the part of a tape that relates its device to others: ranks that share weights
// or tokens, stages of a pipeline, and further GPUs of the same process.
type ranks struct {
	// splits are the weights that ranks share; nil if there are none.
	splits map[*Tensor]Sharing
	// styles apply to the calls of modules whose ranks share tokens; nil if there are none.
	styles map[*Path]Style
	// subclassed reports whether tensors are DTensors.
	subclassed bool
	// collectives are asynchronous and not yet waited for.
	collectives []asyncCollective
	pipeline    pipeline
	// spread describes a model over several GPUs of the process; nil for most.
	spread *spread
}

// here reports whether the recorded device runs the current code.
func (r *ranks) here() bool { return r.pipeline.part == OwnStage }

// crossing reports whether a kernel may read tensors of other devices, or run on one.
func (r *ranks) crossing() bool { return !r.here() || r.pipeline.boundary != nil }
