// Package compiled knows steps under torch.compile that were recorded: what forward and backward allocate as Inductor
// has compiled them, at some batch sizes. A model with such a recording next to its file plans its compiled steps
// by it; the optimizer's step and the loop are those of the recorder.
package compiled
