package cudnn

import "github.com/vprof/vprof/internal/ceil"

// RNNMode is the kind of a recurrent layer.
type RNNMode int

// The recurrent layers of cuDNN.
const (
	SimpleRNN RNNMode = iota // with tanh or ReLU
	GRU
	LSTM
)

// Gates is how many products a step makes of its input.
func (m RNNMode) Gates() int64 { return [...]int64{1, 3, 4}[m] }

// RNN is a stack of recurrent layers that cuDNN runs as one, with its standard algorithm.
type RNN struct {
	Mode               RNNMode
	Element            int64 // bytes of a number
	Length, Batch      int64
	Inputs, Hidden     int64
	Layers, Directions int64
	Training           bool
}

// Parts of the sizes that cuDNN 9 reports (cudnnGetRNNTempSpaceSizes), in bytes.
const (
	rnnReserveSlack    = 256
	rnnWorkspaceSlack  = 384
	rnnStreamWorkspace = 8 << 20 // of each layer and direction: they run on streams of their own
)

// Reserve is the space in bytes that a forward pass in training keeps for backward. It holds per
// step and hidden unit one value of a simple RNN, six of a GRU, five of an LSTM, and one between
// layers.
func (r RNN) Reserve() int64 {
	kept := r.kept()
	return r.Element*r.Length*r.Batch*r.Hidden*r.Directions*(kept*r.Layers+r.Layers-1) + rnnReserveSlack
}

func (r RNN) kept() int64 { return [...]int64{1, 6, 5}[r.Mode] }

// FLOPs is the work of a pass, in multiplications with their additions.
func (r RNN) FLOPs() int64 {
	flops, in := int64(0), r.Inputs
	for range r.Layers {
		flops += r.Directions * r.Length * r.Batch * r.Mode.Gates() * r.Hidden * (in + r.Hidden)
		in = r.Directions * r.Hidden
	}
	return flops
}

// Workspace is what any pass asks for in bytes.
//
// It holds the matrices, the inputs and outputs of all layers, products of the gates, and states.
// Training asks for the larger of what forward and backward need. The counts are read off
// recordings of ten layers (each kind with one layer, GRU and LSTM with two bidirectional ones,
// for training and not), which they give to the byte; no document confirms them. Boards of 98
// multiprocessors and more may run persistent kernels instead, whose workspaces have not been
// seen.
func (r RNN) Workspace() int64 {
	e, hidden, layers, d := r.Element, r.Hidden, r.Layers, r.Directions
	gates, kept, steps := r.Mode.Gates(), r.kept(), r.Length*r.Batch
	matrices := int64(0) // bytes
	in, widest, all := r.Inputs, r.Inputs, int64(0)
	for range layers {
		matrices += d * (ceil.Multiple(e*gates*hidden*in, 16) + ceil.Multiple(e*gates*hidden*hidden, 16))
		all += in
		widest = max(widest, in)
		in = d * hidden
	}
	states := [...]int64{1, 1, 2}[r.Mode]
	forward := steps*(all+hidden*(layers*d+(4+d)*gates)) +
		r.Batch*hidden*(4*states*layers*d+2*d*(layers-1))
	backward := steps*(all+r.Inputs+widest+hidden*(8+kept+layers*d+2*d)) +
		r.Batch*hidden*((4*states+2)*layers*d+2*d*(layers-1))
	elements := forward
	if r.Training {
		elements = max(forward, backward)
	}
	workspace := rnnStreamWorkspace*layers*d + rnnWorkspaceSlack + matrices + e*elements
	if hidden%8 != 0 {
		workspace += 16 // matrices that are not aligned
	}
	return workspace
}
