package cudnn

import "github.com/vprof/vprof/internal/ceil"

// RNNMode is the kind of an RNN layer: simple, GRU or LSTM.
type RNNMode int

// The RNN layers of cuDNN.
const (
	SimpleRNN RNNMode = iota // with tanh or ReLU
	GRU
	LSTM
)

// Gates returns the number of matrix products of a time step with its input.
func (m RNNMode) Gates() int64 { return [...]int64{1, 3, 4}[m] }

// RNN is a stack of RNN layers that cuDNN runs in one call, with its standard algorithm.
type RNN struct {
	Mode               RNNMode
	Element            int64 // bytes of a number
	Length, Batch      int64
	Inputs, Hidden     int64
	Layers, Directions int64
	Training           bool
	Dropout            bool // between layers, while training
	// Packed is the total length of packed sequences; 0 for padded ones.
	Packed int64
}

// Constants in the sizes that cuDNN 9 reports (cudnnGetRNNTempSpaceSizes).
const (
	rnnSlack           = 256     // bytes, of both spaces
	rnnStreamWorkspace = 8 << 20 // bytes, of each layer and direction: they run on streams of their own
	rnnSteps           = 256     // of one direction: the gates of so many are computed at once
	rnnRecorded        = 10 * 10 // capability from which on the sizes match recordings
)

// Reserve returns the bytes that a forward pass in training saves for backward. Per step and hidden unit, these are one
// value for a simple RNN, six for a GRU, five for an LSTM, and one between layers. With dropout, each layer after the
// first also has one bit for each of its inputs, in each direction.
func (r RNN) Reserve() int64 {
	kept := r.kept()
	space := r.Element*r.steps()*r.Hidden*r.Directions*(kept*r.Layers+r.Layers-1) + rnnSlack
	if r.Dropout {
		space += (r.Layers - 1) * r.Directions * ceil.Multiple(ceil.Div(r.Length*r.Batch*r.Hidden*r.Directions, 8), 32)
	}
	return space
}

func (r RNN) kept() int64 { return [...]int64{1, 6, 5}[r.Mode] }

// states returns the number of state tensors that a layer passes from step to step.
func (r RNN) states() int64 { return [...]int64{1, 1, 2}[r.Mode] }

// steps returns the number of time steps, summed over the sequences of the batch.
func (r RNN) steps() int64 {
	if r.Packed > 0 {
		return r.Packed
	}
	return r.Length * r.Batch
}

// FLOPs returns the work of a pass, counting a multiply-add as one.
func (r RNN) FLOPs() int64 {
	flops, in := int64(0), r.Inputs
	for range r.Layers {
		flops += r.Directions * r.steps() * r.Mode.Gates() * r.Hidden * (in + r.Hidden)
		in = r.Directions * r.Hidden
	}
	return flops
}

// Workspace returns the workspace of a pass in bytes, on a GPU of a compute capability (times ten). Training allocates
// the larger of the workspaces of forward and backward.
//
// The counts were fitted to thousands of answers of cuDNN 9.10, 9.19, 9.20, 9.24 and 9.26, and give them to the byte
// where sizes are multiples of 16, within 256 bytes elsewhere. cuDNN gave these answers without a GPU; peaks of PyTorch
// 2.15 on an RTX 3090 agree, recordings of an RTX 5060 Ti (12.0) do not. GPUs of 98 multiprocessors and more may run
// persistent kernels instead, whose workspaces have not been seen.
func (r RNN) Workspace(capability int) int64 {
	forward, backward := r.forward(), r.backward()
	if capability >= rnnRecorded {
		forward, backward = r.recorded()
	}
	elements := forward
	if r.Training {
		elements = max(forward, backward)
	}
	workspace := rnnStreamWorkspace*r.Layers*r.Directions + rnnSlack + r.matrices() + r.Element*elements
	if r.Packed == 0 {
		workspace += 2 * ceil.Multiple(4*r.Batch, 16) // lengths of sequences
	}
	if capability >= rnnRecorded && r.Hidden%8 != 0 {
		workspace += 16 // matrices that are not aligned
	}
	return workspace
}

// matrices returns the bytes of the weights, each of them aligned.
func (r RNN) matrices() int64 {
	bytes, in := int64(0), r.Inputs
	each := r.Element * r.Mode.Gates() * r.Hidden
	for range r.Layers {
		bytes += r.Directions * (ceil.Multiple(each*in, 16) + ceil.Multiple(each*r.Hidden, 16))
		in = r.Directions * r.Hidden
	}
	return bytes
}

// forward returns the elements of a forward pass: the gates, and for padded sequences packed copies of the input, the
// output and the states. With two directions, inputs and outputs are added.
func (r RNN) forward() int64 {
	gates, d, states := r.Mode.Gates(), r.Directions, r.states()
	steps, layers := r.steps(), r.Batch*r.Hidden*r.Layers
	elements := min(steps, rnnSteps*r.Batch)*r.Hidden*gates + layers*(gates+2*(states-1))
	switch {
	case d == 2:
		elements = steps*r.Hidden*(2*gates+4) + layers*(2*gates+4*states)
	case r.Dropout:
		elements += steps * r.Hidden // what is left of a layer's output
	}
	if r.Packed == 0 {
		elements += steps*(r.Inputs+d*r.Hidden) + layers*d*2*states
	}
	return elements
}

// backward returns the elements of a backward pass: gradients of the layers' inputs and outputs, and packed copies of
// padded inputs and outputs. Several layers in one direction run concurrently, each some steps behind the next.
func (r RNN) backward() int64 {
	d, states := r.Directions, r.states()
	steps, layers, widest := r.steps(), r.Batch*r.Hidden*r.Layers, max(r.Inputs, r.Hidden)
	var elements int64
	switch {
	case d == 2:
		elements = steps*(2*r.Hidden*min(r.Layers, 2)+4*widest) + layers*(4*states+2)
	case r.Layers == 1:
		elements = steps*(r.Hidden+widest) + layers*(2*states-1)
	default:
		elements = steps*widest + min(steps, r.window()*r.Batch)*r.Hidden + layers*(2*states-1)
	}
	if r.Packed == 0 {
		elements += steps*2*(r.Inputs+d*r.Hidden) + layers*d*4*states
	}
	return elements
}

// window returns the number of steps by which the first of several layers is ahead of the last.
func (r RNN) window() int64 {
	ahead := int64(2)
	for _, row := range [][2]int64{{1, 32}, {8, 16}, {16, 8}, {96, 4}} {
		if r.Batch <= row[0] {
			ahead = row[1]
			break
		}
	}
	return max(8, ahead) + r.Layers*ahead
}

// recorded returns the elements of a forward and a backward pass as recorded on an RTX 5060 Ti: the inputs and outputs
// of all layers, products of the gates, and states. The formula gives all ten recordings to the byte (each mode with
// one layer, GRU and LSTM with two bidirectional layers, in training and evaluation).
func (r RNN) recorded() (forward, backward int64) {
	layers, d, gates, states, hidden := r.Layers, r.Directions, r.Mode.Gates(), r.states(), r.Hidden
	all, widest := r.Inputs+(layers-1)*d*hidden, r.Inputs
	if layers > 1 {
		widest = max(widest, d*hidden)
	}
	forward = r.steps()*(all+hidden*(layers*d+(4+d)*gates)) + r.Batch*hidden*(4*states*layers*d+2*d*(layers-1))
	backward = r.steps()*(all+r.Inputs+widest+hidden*(8+r.kept()+layers*d+2*d)) +
		r.Batch*hidden*((4*states+2)*layers*d+2*d*(layers-1))
	return forward, backward
}
