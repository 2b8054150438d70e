package trace

import (
	"fmt"

	"github.com/vprof/vprof/profiler/program"
)

// storage is one allocation. Tensors and their views share it; it is freed when the last of them ends.
type storage struct {
	buffer uint32
	bytes  int64
	refs   int32
	// version counts the in-place writes that autograd followed.
	version int32
	// blank marks a storage of zero bytes: PyTorch allocates nothing for it.
	blank bool
	// received marks a storage in a buffer that another stage has sent, see [Tape.StagePass].
	received bool
	// otherGPU marks a storage on another GPU of the process, see [Tape.SetDeviceMap].
	otherGPU bool
	// pending marks a storage that a collective has yet to fill, see [Tape.waitForRead].
	pending bool
	// trues is the number of true elements of a mask plus one, zero if unknown, see SetTrue.
	trues int64
}

// Tensor has a shape, strides, an element type and a storage, but no data.
//
// Its life is PyTorch's: references are counted. A result without a name is a temporary and dies as soon as the
// expression that uses it ends; names (see [Frame]), autograd, containers and optimizers hold it longer. Using a tensor
// without references is a bug of the model's description and panics.
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
	// view is the tensor that this one is a view of, nil if it is none; version is the
	// storage's when the view's node was made.
	view    *Tensor
	version int32

	node  *Node   // the node that computed it; nil for leaves
	accum *Node   // a leaf's AccumulateGrad, once there is one
	grad  *Tensor // a leaf's gradient
	half  *Tensor // a leaf's copy in the cache of autocast
}

// Shape returns the size of each dimension. It must not be changed.
func (x *Tensor) Shape() []int64 { return x.shape }

// Strides returns the strides in elements. They must not be changed.
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

// Tape returns the recording this tensor belongs to.
func (x *Tensor) Tape() *Tape { return x.tape }

// RequiresGrad reports whether autograd follows this tensor.
func (x *Tensor) RequiresGrad() bool { return x.requiresGrad }

// Grad returns the accumulated gradient of a leaf, nil if there is none.
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

// Retain adds a reference. None, which is nil, has no references.
func (x *Tensor) Retain() *Tensor {
	if x != nil {
		x.refs++
	}
	return x
}

// Release drops a reference; the last one ends the tensor.
func (x *Tensor) Release() {
	if x == nil {
		return
	}
	x.refs--
	if x.refs <= 0 {
		x.die()
	}
}

// releaseAll drops a reference to each of xs, in order.
func releaseAll(xs []*Tensor) {
	for _, x := range xs {
		x.Release()
	}
}

// die releases the graph first and then the storage, as TensorImpl::release_resources does.
func (x *Tensor) die() {
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

// alive panics when x was used after its last reference ended.
func (x *Tensor) alive() {
	if x != nil && x.dead && !x.tape.autograd.hooks.unwinding {
		panic(fmt.Sprintf("trace: tensor %v used after its last reference went; name it with Frame.Bind", x.shape))
	}
}

func (x *Tensor) classify(c program.Class) {
	if !x.store.blank {
		x.tape.prog.Buffers[x.store.buffer].Class = c
	}
}

// class returns the class of x's buffer now.
func (x *Tensor) class() program.Class {
	if x.store.blank {
		return program.Temporaries
	}
	return x.tape.prog.Buffers[x.store.buffer].Class
}
