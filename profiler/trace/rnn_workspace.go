package trace

import "github.com/vprof/vprof/internal/ceil"

// Sizes that cuDNN 9 reports for recurrent layers
// (cudnnGetRNNTempSpaceSizes) with its standard algorithm, in bytes.
const (
	rnnReserveSlack    = 256
	rnnWorkspaceSlack  = 384
	rnnStreamWorkspace = 8 << 20 // of each layer and direction: they run on streams of their own
)

// rnnSize is the sizes that cuDNN derives from a recurrent layer's shape.
type rnnSize struct {
	length, batch      int64
	reserve, workspace int64
	flops              int64
}

// size works out what cuDNN needs for input x.
//
// The reserve space, kept for backward, holds per step and hidden unit one
// value of a simple RNN, six of a GRU, five of an LSTM, and one between layers.
//
// The workspace holds the matrices, the inputs and outputs of all layers,
// products of the gates, and states. Training asks for the larger of what
// forward and backward need. The counts are read off recordings of ten layers
// (each kind with one layer, GRU and LSTM with two bidirectional ones, for
// training and not), which they give to the byte; no document confirms them.
// Boards of 98 multiprocessors and more may run persistent kernels instead,
// whose workspaces have not been seen.
func (a *RNNArgs) size(x *Tensor) rnnSize {
	s := rnnSize{length: x.shape[0], batch: x.shape[1]}
	if a.BatchFirst {
		s.length, s.batch = s.batch, s.length
	}
	e, inputs, hidden, layers, d := x.dtype.Size(), x.shape[2], a.Hidden, a.Layers, a.directions()
	gates, steps := a.Mode.gates(), s.length*s.batch
	kept := [...]int64{1, 6, 5}[a.Mode]
	s.reserve = e*steps*hidden*d*(kept*layers+layers-1) + rnnReserveSlack

	matrices := int64(0) // bytes
	in, widest, all := inputs, inputs, int64(0)
	for range layers {
		s.flops += d * steps * gates * hidden * (in + hidden)
		matrices += d * (ceil.Multiple(e*gates*hidden*in, 16) + ceil.Multiple(e*gates*hidden*hidden, 16))
		all += in
		widest = max(widest, in)
		in = d * hidden
	}
	states := [...]int64{1, 1, 2}[a.Mode]
	forward := steps*(all+hidden*(layers*d+(4+d)*gates)) +
		s.batch*hidden*(4*states*layers*d+2*d*(layers-1))
	backward := steps*(all+inputs+widest+hidden*(8+kept+layers*d+2*d)) +
		s.batch*hidden*((4*states+2)*layers*d+2*d*(layers-1))
	elements := forward
	if a.Training {
		elements = max(forward, backward)
	}
	s.workspace = rnnStreamWorkspace*layers*d + rnnWorkspaceSlack + matrices + e*elements
	if hidden%8 != 0 {
		s.workspace += 16 // matrices that are not aligned
	}
	return s
}
