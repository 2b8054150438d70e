package trace

import (
	"fmt"

	"github.com/vprof/vprof/profiler/program"
)

// storage is one allocation, shared by a tensor and its views. It is freed when the last of them is released.
type storage struct {
	buffer uint32
	bytes  int64
	refs   int32
	// version counts the in-place writes that autograd tracked.
	version int32
	// blank reports whether the storage has no memory, because it has zero bytes or its memory is not recorded.
	blank bool
	// received reports whether the memory is a buffer received from another stage, see [Tape.StagePass].
	received bool
	// otherGPU reports whether the storage is on another GPU of the process, see [Tape.SetDeviceMap].
	otherGPU bool
	// pending reports whether an unfinished collective writes the storage, see [Tape.waitForRead].
	pending bool
	// trues is the number of true elements of a mask plus one; zero if unknown, see [Tensor.SetTrue].
	trues int64
}

// Tensor has a shape, strides, an element type and a storage, but no data.
//
// References are counted as in PyTorch. A result that no variable holds is a temporary, which is freed after the
// expression that uses it. Variables (see [Frame]), autograd, containers and optimizers hold it longer. Using a tensor
// without references is a bug of the model's description, and panics.
type Tensor struct {
	*layout // shape and strides
	tape    *Tape
	store   *storage
	offset  int64
	refs    int32
	out     int32 // which output of node this is
	dtype   DType

	requiresGrad bool
	dead         bool
	listed       int8 // how often it is in the tape's list of temporaries
	// view is the base tensor of a view, otherwise nil. version is the storage's version when the view's node was made.
	view    *Tensor
	version int32

	node  *Node   // the node that computed it; nil for leaves
	accum *Node   // a leaf's AccumulateGrad, once there is one
	grad  *Tensor // a leaf's gradient
	half  *Tensor // a leaf's copy in the cache of autocast
}

// Shape returns the size of each dimension. The caller must not change the slice.
func (x *Tensor) Shape() []int64 { return x.shape }

// Strides returns the strides in elements. The caller must not change the slice.
func (x *Tensor) Strides() []int64 { return x.strides }

// Size returns the size of dimension d; negative d counts from the end.
func (x *Tensor) Size(d int) int64 { return x.shape[x.Dim(d)] }

// NDim returns the number of dimensions.
func (x *Tensor) NDim() int { return len(x.shape) }

// Numel returns the number of elements.
func (x *Tensor) Numel() int64 { return x.numel }

// DType returns the element type.
func (x *Tensor) DType() DType { return x.dtype }

// Bytes returns the size of the elements in bytes. The storage may be larger.
func (x *Tensor) Bytes() int64 { return x.numel * x.dtype.Size() }

// Tape returns the tape on which the tensor is recorded.
func (x *Tensor) Tape() *Tape { return x.tape }

// RequiresGrad returns x.requires_grad.
func (x *Tensor) RequiresGrad() bool { return x.requiresGrad }

// Grad returns the accumulated gradient of a leaf; nil if it has none.
func (x *Tensor) Grad() *Tensor { return x.grad }

// SharesStorage reports whether x and y are views of one allocation.
func (x *Tensor) SharesStorage(y *Tensor) bool { return x.store == y.store }

func (x *Tensor) isLeaf() bool { return x.node == nil }

// Dim returns dimension d counted from the first; a negative d counts from the end.
func (x *Tensor) Dim(d int) int {
	if d < 0 {
		d += len(x.shape)
	}
	return d
}

// Retain adds a reference and returns x; nil stays nil.
func (x *Tensor) Retain() *Tensor {
	if x != nil {
		x.refs++
	}
	return x
}

// Release removes a reference. The last one frees the tensor.
func (x *Tensor) Release() {
	if x == nil {
		return
	}
	x.refs--
	if x.refs <= 0 {
		x.releaseResources()
	}
}

// releaseAll releases each of xs, in order.
func releaseAll(xs []*Tensor) {
	for _, x := range xs {
		x.Release()
	}
}

// releaseResources releases x's autograd node and then its storage, in the order of TensorImpl::release_resources.
func (x *Tensor) releaseResources() {
	if x.dead {
		return
	}
	x.dead = true
	n := x.node
	x.node = nil
	n.release()
	g := x.grad
	x.grad = nil
	g.Release()
	x.tape.drop(x.store)
	if v := x.view; v != nil {
		x.view = nil
		v.Release()
	}
	if x.listed == 0 {
		x.tape.retire(x)
	}
}

// checkReferences panics if x has no references any more.
func (x *Tensor) checkReferences() {
	if x != nil && x.dead && !x.tape.autograd.hooks.unwinding {
		panic(fmt.Sprintf("trace: tensor %v used after its last reference went; name it with Frame.Bind", x.shape))
	}
}

func (x *Tensor) classify(c program.Class) {
	if !x.store.blank {
		x.tape.prog.Buffers[x.store.buffer].Class = c
	}
}

// class returns the current class of x's buffer.
func (x *Tensor) class() program.Class {
	if x.store.blank {
		return program.Temporaries
	}
	return x.tape.prog.Buffers[x.store.buffer].Class
}
