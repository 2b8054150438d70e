package trace

import (
	"fmt"

	"github.com/vprof/vprof/profiler/program"
)

// storage is one allocation. Tensors and their views share it; it is freed
// when the last of them goes.
type storage struct {
	buffer uint32
	bytes  int64
	refs   int32
	// version counts what autograd followed of the in-place writes.
	version int32
	// blank marks a storage of zero bytes: PyTorch allocates nothing for it.
	blank bool
}

// Tensor has a shape, strides, an element type and a storage, but no data.
//
// Its life is PyTorch's: references are counted. A result that nobody has
// named is a temporary and dies as soon as the expression that uses it is
// done; names (see [Frame]), autograd, containers and optimizers hold it
// longer. Using a tensor after its last reference went is a bug of the model
// description and panics.
type Tensor struct {
	tape    *Tape
	store   *storage
	shape   []int64
	strides []int64
	offset  int64
	numel   int64
	refs    int32
	out     int32 // which output of node this is
	dtype   DType

	requiresGrad bool
	dead         bool
	listed       int8 // how often it is among the tape's temporaries
	// view is the tensor this one is a view of, nil if it is none; version is
	// that of the storage when the view's node was made.
	view    *Tensor
	version int32

	node  *Node   // what computed it; nil for leaves
	accum *Node   // a leaf's AccumulateGrad, once there is one
	grad  *Tensor // a leaf's gradient
}

// Shape is the size of each dimension. It must not be changed.
func (x *Tensor) Shape() []int64 { return x.shape }

// Strides are in elements. They must not be changed.
func (x *Tensor) Strides() []int64 { return x.strides }

// Size is the size of dimension d; negative d counts from the end.
func (x *Tensor) Size(d int) int64 { return x.shape[x.dim(d)] }

// NDim is the number of dimensions.
func (x *Tensor) NDim() int { return len(x.shape) }

// Numel is the number of elements.
func (x *Tensor) Numel() int64 { return x.numel }

// DType is the element type.
func (x *Tensor) DType() DType { return x.dtype }

// Bytes is the size of the elements, whatever the storage holds beside them.
func (x *Tensor) Bytes() int64 { return x.numel * x.dtype.Size() }

// Tape is the recording this tensor belongs to.
func (x *Tensor) Tape() *Tape { return x.tape }

// RequiresGrad reports whether autograd follows this tensor.
func (x *Tensor) RequiresGrad() bool { return x.requiresGrad }

// Grad is the accumulated gradient of a leaf, nil if there is none.
func (x *Tensor) Grad() *Tensor { return x.grad }

// SharesStorage reports whether x and y are views of one allocation.
func (x *Tensor) SharesStorage(y *Tensor) bool { return x.store == y.store }

func (x *Tensor) isLeaf() bool { return x.node == nil }

func (x *Tensor) dim(d int) int {
	if d < 0 {
		d += len(x.shape)
	}
	return d
}

// retain adds a reference.
func (x *Tensor) retain() *Tensor {
	x.refs++
	return x
}

// release drops a reference; the last one ends the tensor.
func (x *Tensor) release() {
	x.refs--
	if x.refs <= 0 {
		x.die()
	}
}

// die gives back the graph first and then the storage, as
// TensorImpl::release_resources does.
func (x *Tensor) die() {
	if x.dead {
		return
	}
	x.dead = true
	if n := x.node; n != nil {
		x.node = nil
		n.release()
	}
	if g := x.grad; g != nil {
		x.grad = nil
		g.release()
	}
	x.tape.drop(x.store)
	if v := x.view; v != nil {
		x.view = nil
		v.release()
	}
	if x.listed == 0 {
		x.tape.bury(x)
	}
}

// alive panics when x was used after its last reference went.
func (x *Tensor) alive() {
	if x.dead && !x.tape.hooks.muted {
		panic(fmt.Sprintf("trace: tensor %v used after its last reference went; name it with Frame.Let", x.shape))
	}
}

// classify moves the buffer of x to class c.
func (x *Tensor) classify(c program.Class) {
	if !x.store.blank {
		x.tape.prog.Buffers[x.store.buffer].Class = c
	}
}

// class is the class of x's buffer now.
func (x *Tensor) class() program.Class {
	if x.store.blank {
		return program.Temporaries
	}
	return x.tape.prog.Buffers[x.store.buffer].Class
}

// setGeometry copies shape and strides into x.
func (x *Tensor) setGeometry(shape, strides []int64) {
	n := len(shape)
	back := x.tape.ints(2 * n)
	copy(back, shape)
	copy(back[n:], strides)
	x.shape, x.strides = back[:n:n], back[n:]
	x.numel = numel(shape)
}

// mostElements is how many elements a tensor can have: more than fit any
// device, and so few that sums over all tensors of a step do not overflow.
const mostElements = 1 << 46

// numel counts elements, up to just beyond [mostElements].
func numel(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		switch {
		case s == 0:
			return 0
		case n > mostElements/s:
			n = mostElements + 1
		default:
			n *= s
		}
	}
	return n
}

// contiguousStrides appends the strides of a dense row-major tensor to dst.
func contiguousStrides(dst, shape []int64) []int64 {
	n := len(shape)
	at := len(dst)
	for range n {
		dst = append(dst, 0)
	}
	step := int64(1)
	for i := n - 1; i >= 0; i-- {
		dst[at+i] = step
		step *= max(shape[i], 1)
	}
	return dst
}

// channelsLastStrides appends NHWC (or NDHWC) strides to dst.
func channelsLastStrides(dst, shape []int64) []int64 {
	n := len(shape)
	at := len(dst)
	for range n {
		dst = append(dst, 0)
	}
	step := int64(1)
	set := func(d int) {
		dst[at+d] = step
		step *= max(shape[d], 1)
	}
	set(1)
	for d := n - 1; d >= 2; d-- {
		set(d)
	}
	set(0)
	return dst
}

// isContiguous is Tensor.is_contiguous(): dimensions of size one do not count.
func (x *Tensor) isContiguous() bool { return denseAs(x.shape, x.strides, nil) }

// isChannelsLast is Tensor.is_contiguous(memory_format=channels_last or _3d).
func (x *Tensor) isChannelsLast() bool {
	switch len(x.shape) {
	case 4:
		return denseAs(x.shape, x.strides, []int{0, 2, 3, 1})
	case 5:
		return denseAs(x.shape, x.strides, []int{0, 2, 3, 4, 1})
	default:
		return false
	}
}

// denseAs reports whether the strides are those of a dense tensor laid out in
// the given order of dimensions, slowest first; nil is row-major.
func denseAs(shape, strides []int64, order []int) bool {
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		d := i
		if order != nil {
			d = order[i]
		}
		if shape[d] == 0 {
			return true
		}
		if shape[d] != 1 {
			if strides[d] != step {
				return false
			}
			step *= shape[d]
		}
	}
	return true
}

// isDense is is_non_overlapping_and_dense: some permutation of the
// dimensions is contiguous.
func (x *Tensor) isDense() bool {
	if x.isContiguous() {
		return true
	}
	var order [8]int
	n := 0
	for d := range x.shape {
		if x.shape[d] > 1 {
			order[n] = d
			n++
		}
	}
	dims := order[:n]
	for i := 1; i < n; i++ { // insertion sort by stride
		for j := i; j > 0 && x.strides[dims[j]] < x.strides[dims[j-1]]; j-- {
			dims[j], dims[j-1] = dims[j-1], dims[j]
		}
	}
	step := int64(1)
	for _, d := range dims {
		if x.strides[d] != step {
			return false
		}
		step *= x.shape[d]
	}
	return true
}

// suggestChannelsLast is suggest_memory_format() == channels_last: the strides
// say so, not merely allow it.
func (x *Tensor) suggestChannelsLast() bool {
	n := len(x.shape)
	if n != 4 && n != 5 {
		return false
	}
	// is_channels_last_strides_2d / _3d of c10/core/MemoryFormat.h.
	if x.strides[1] == 0 {
		return false
	}
	least := int64(0)
	visit := func(d int) bool {
		if x.shape[d] == 0 || x.strides[d] < least {
			return false
		}
		if d == 0 && least == x.strides[1] {
			return false
		}
		least = x.strides[d]
		if x.shape[d] > 1 {
			least *= x.shape[d]
		}
		return true
	}
	if !visit(1) {
		return false
	}
	for d := n - 1; d >= 2; d-- {
		if !visit(d) {
			return false
		}
	}
	return visit(0)
}

func sameInts(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
