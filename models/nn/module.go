package nn

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Module is embedded by every layer, as PyTorch's layers derive from torch.nn.Module. The exported fields of a layer
// are its parameters, buffers and children; they must be declared in PyTorch's order.
type Module struct {
	path trace.Path
	eval bool
	tree *Tree // the last tree that visited the module
}

// ModulePath returns the module's path in the model, which [NewTree] sets.
func (m *Module) ModulePath() *trace.Path { return &m.path }

// Training reports whether the module is in training mode.
func (m *Module) Training() bool { return !m.eval }

// Parameters returns the parameters of the module and its children in PyTorch's order. [NewTree] must have visited it.
func (m *Module) Parameters() (below []*Parameter) {
	for i, n := range m.tree.names {
		if IsBelow(join(n.module, n.own), m.path.Name) {
			below = append(below, m.tree.Parameters[i])
		}
	}
	return below
}

func (m *Module) base() *Module { return m }

// TorchNames maps Go names of a module's children to PyTorch's. A module embeds it to rename children.
type TorchNames map[string]string

// TorchName returns a child's name in PyTorch; own if the map has no other.
func (n TorchNames) TorchName(own string) string {
	if other, ok := n[own]; ok {
		return other
	}
	return own
}

// Parameter is torch.nn.Parameter. Its shape is known from the start; its tensor exists once the model is on the GPU.
type Parameter struct {
	*trace.Tensor
	Dims        []int64
	DType       trace.DType
	Frozen      bool // requires_grad=False
	IsElsewhere bool // on another pipeline rank
	IsEmbedding bool // of an [Embedding]
	// Strides are the strides of a parameter that is dense but not contiguous; nil if it is contiguous.
	Strides []int64
	// load, if not nil, allocates the parameter on the GPU instead of a plain copy. movesLater leaves that to
	// [MoveAdapters].
	load       func(t *trace.Tape)
	movesLater bool
	// returns reports whether from_pretrained moves the parameter back to the host before it quantizes it
	// (Bnb8bitQuantize).
	returns bool
	// unpack dequantizes the parameter whenever the module's code reads the attribute; nil if it is not quantized.
	unpack *parametrization
	// wrapper is the adapter around the parameter; nil if there is none.
	wrapper *ParamWrapper
	tree    *Tree // the last tree that visited the parameter
}

// NewParameter returns an fp32 parameter.
func NewParameter(dims ...int64) *Parameter { return &Parameter{Dims: dims, DType: trace.F32} }

// Numel returns the number of elements, also before the parameter is on the GPU.
func (p *Parameter) Numel() int64 { return product(p.Dims) }

// TensorOrNil returns the parameter's tensor; nil if p is nil, as a layer's missing bias is.
func (p *Parameter) TensorOrNil() *trace.Tensor {
	if p == nil {
		return nil
	}
	return p.Tensor
}

// Buffer is a tensor of register_buffer, which is not trained.
type Buffer struct {
	*trace.Tensor
	Dims  []int64
	DType trace.DType
	// HasWeightType reports whether the buffer has the data type of the model's weights.
	HasWeightType bool
	// Constant reports whether the buffer is a constant of an exported graph, which no module registers.
	Constant    bool
	IsElsewhere bool  // on another pipeline rank, or on the host
	tree        *Tree // the last tree that visited the buffer
}

// NewBufferOfWeights returns a buffer in the data type of the model's weights.
func NewBufferOfWeights(dims ...int64) *Buffer {
	return &Buffer{Dims: dims, DType: trace.F32, HasWeightType: true}
}

// NewBuffer returns a buffer of a module.
func NewBuffer(d trace.DType, dims ...int64) *Buffer { return &Buffer{Dims: dims, DType: d} }

// TensorOrNil returns the buffer's tensor; nil if b is nil.
func (b *Buffer) TensorOrNil() *trace.Tensor {
	if b == nil {
		return nil
	}
	return b.Tensor
}

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// Tree is a model as PyTorch traverses it: named modules, parameters and buffers in the orders of named_parameters()
// and Module._apply().
type Tree struct {
	// Parameters are in the order of PyTorch's parameters().
	Parameters []*Parameter
	Buffers    []*Buffer
	buffered   []string // path of each buffer's module
	names      []parameterName
	moved      []any // parameters and buffers in the order of .to(device)
	modules    []*Module
	linears    []string
	tied       []tiedParameter
	lists      []moduleList
	packs      []ExpertQuantizable
	wraps      []ParameterWrappable
	wrapped    []string // path of each element of wraps
	// others are the addresses of visited structs that are neither modules nor parameters.
	others map[uintptr]bool
}

// parameterName is the path of a module and the name of one of its parameters.
type parameterName struct{ module, own string }

// tiedParameter is a shared parameter in a module that does not name it: p is held in the field at, as module.own.
type tiedParameter struct {
	p           *Parameter
	module, own string
	at          **Parameter
}

// UntieParameter gives each further module that shares the parameter a copy. It returns the new parameter, without a
// tensor, and its name; nil if no other module shares it.
func (t *Tree) UntieParameter(p *Parameter) (own *Parameter, name string) {
	for _, s := range t.tied {
		if s.p != p || s.at == nil {
			continue
		}
		if own == nil {
			own, name = &Parameter{Dims: p.Dims, DType: p.DType, Frozen: p.Frozen}, join(s.module, s.own)
		}
		*s.at = own
	}
	return own, name
}

// SharingModules returns the paths of the further modules that share a parameter. The first module names the parameter.
func (t *Tree) SharingModules(p *Parameter) (modules []string) {
	for _, s := range t.tied {
		if s.p == p {
			modules = append(modules, s.module)
		}
	}
	return modules
}

// Names returns the names of the parameters as in PyTorch's named_parameters().
func (t *Tree) Names() []string {
	return lists.Map(t.names, func(n parameterName) string { return join(n.module, n.own) })
}

// moveHook is a layer with a hook that runs after its parameters have moved to a device.
type moveHook interface{ afterMove(t *trace.Tape) }

// NewTree returns the tree of a model: a pointer to a struct that embeds [Module].
func NewTree(model any) *Tree {
	t := &Tree{}
	t.walk(reflect.ValueOf(model), "")
	return t
}

// walk adds the modules and parameters of v to the tree. A module's own parameters come before its children's, as in
// parameters(); .to(device) moves the children first.
func (t *Tree) walk(v reflect.Value, path string) {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice:
		t.lists = append(t.lists, moduleList{path, v})
		for i := range v.Len() {
			t.walk(v.Index(i), join(path, strconv.Itoa(i)))
		}
	case reflect.Pointer:
		if v.IsNil() || v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		layer := v.Interface()
		if !t.visitFirst(v, layer, path) {
			return
		}
		if _, linear := layer.(*Linear); linear {
			t.linears = append(t.linears, path)
		}
		if l, ok := layer.(ExpertQuantizable); ok {
			t.packs = append(t.packs, l)
		}
		if l, ok := layer.(ParameterWrappable); ok {
			t.wraps, t.wrapped = append(t.wraps, l), append(t.wrapped, path)
		}
		t.addModule(v.Elem(), layer, path)
	}
}

func (t *Tree) visitFirst(v reflect.Value, layer any, path string) bool {
	m, ok := layer.(interface{ base() *Module })
	if !ok {
		known := t.others[v.Pointer()]
		if t.others == nil {
			t.others = map[uintptr]bool{}
		}
		t.others[v.Pointer()] = true
		return !known
	}
	b := m.base()
	if b.tree == t {
		return false
	}
	b.tree, b.path = t, trace.Path{Name: path}
	t.modules = append(t.modules, b)
	return true
}

func (t *Tree) addModule(v reflect.Value, layer any, path string) {
	parameters, buffers := len(t.Parameters), len(t.Buffers)
	if l, ok := layer.(interface {
		ownParameters() ([]string, []*Parameter)
	}); ok {
		names, own := l.ownParameters()
		for i, p := range own {
			t.addParameter(p, path, names[i], nil)
		}
	}
	fields := torchFieldsOf(v.Type())
	for _, f := range fields.tensors {
		switch x := v.Field(f.index).Interface().(type) {
		case *Parameter:
			t.addParameter(x, path, f.name, v.Field(f.index).Addr().Interface().(**Parameter))
		case *Buffer:
			t.addBuffer(x, path)
		}
	}
	parts, held := layer.(*NamedModule)
	if held {
		for _, b := range parts.buffers {
			t.addBuffer(b, path)
		}
	}
	parametersEnd, buffersEnd := len(t.Parameters), len(t.Buffers)
	for _, f := range fields.children {
		t.walk(v.Field(f.index), join(path, childName(layer, f.name)))
	}
	if held {
		for i, child := range parts.children {
			t.walk(reflect.ValueOf(child), join(path, parts.names[i]))
		}
	}
	for _, p := range t.Parameters[parameters:parametersEnd] {
		t.moved = append(t.moved, p)
	}
	for _, b := range t.Buffers[buffers:buffersEnd] {
		t.moved = append(t.moved, b)
	}
	if l, ok := layer.(moveHook); ok {
		t.moved = append(t.moved, l)
	}
}

// addParameter adds a parameter of a module; nil is ignored. If several modules share it, the first one names it.
func (t *Tree) addParameter(p *Parameter, module, own string, at **Parameter) {
	switch {
	case p == nil:
	case p.tree == t:
		t.tied = append(t.tied, tiedParameter{p, module, own, at})
	default:
		p.tree = t
		t.Parameters = append(t.Parameters, p)
		t.names = append(t.names, parameterName{module, own})
	}
}

// addBuffer adds a buffer once, even if several modules share it.
func (t *Tree) addBuffer(b *Buffer, module string) {
	if b != nil && b.tree != t {
		b.tree = t
		t.Buffers, t.buffered = append(t.Buffers, b), append(t.buffered, module)
	}
}

// torchField is an exported field of a layer with its name in PyTorch.
type torchField struct {
	index int
	name  string
}

type torchFields struct{ tensors, children []torchField }

var knownFields sync.Map // reflect.Type to *fields

func torchFieldsOf(kind reflect.Type) *torchFields {
	if known, ok := knownFields.Load(kind); ok {
		return known.(*torchFields)
	}
	out := &torchFields{}
	for i := range kind.NumField() {
		f := kind.Field(i)
		if !f.IsExported() {
			continue
		}
		at := torchField{i, fieldName(f)}
		switch {
		case f.Type == reflect.TypeFor[*Parameter](), f.Type == reflect.TypeFor[*Buffer]():
			out.tensors = append(out.tensors, at)
		case f.Type.Kind() == reflect.Pointer, f.Type.Kind() == reflect.Interface, f.Type.Kind() == reflect.Slice:
			out.children = append(out.children, at)
		}
	}
	knownFields.Store(kind, out)
	return out
}

// fieldName returns a field's name in PyTorch: its tag, or its Go name in snake case. An empty tag is for a list
// whose elements are the module's direct children.
func fieldName(f reflect.StructField) string {
	if name, ok := f.Tag.Lookup("torch"); ok {
		return name
	}
	var b strings.Builder
	for i, r := range f.Name {
		if unicode.IsUpper(r) {
			if i > 0 {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// childName returns a child's name in PyTorch; a layer with [TorchNames] can rename it.
func childName(layer any, own string) string {
	if l, ok := layer.(interface{ TorchName(own string) string }); ok {
		return l.TorchName(own)
	}
	return own
}

func join(path, name string) string {
	switch {
	case path == "":
		return name
	case name == "":
		return path
	default:
		return path + "." + name
	}
}

// Numel returns the numbers of elements of all parameters and of the trainable ones.
func (t *Tree) Numel() (total, trainable int64) {
	for _, p := range t.Parameters {
		total += p.Numel()
		if !p.Frozen {
			trainable += p.Numel()
		}
	}
	return total, trainable
}

// BufferNumel returns the number of elements of all buffers.
func (t *Tree) BufferNumel() int64 {
	return lists.Sum(t.Buffers, func(b *Buffer) int64 { return product(b.Dims) })
}

// MoveToDevice records model.to(device), which allocates the parameters and buffers.
func (t *Tree) MoveToDevice(tape *trace.Tape) {
	for _, m := range t.moved {
		t.moveOne(tape, m)
	}
}

// moveOne moves one parameter or buffer, or calls a layer's hook.
func (*Tree) moveOne(tape *trace.Tape, moved any) {
	switch x := moved.(type) {
	case *Parameter:
		if !x.movesLater {
			tape.OnOtherRank(x.IsElsewhere, func() { x.move(tape) })
		}
	case *Buffer:
		tape.OnOtherRank(x.IsElsewhere, func() {
			x.Tensor = tape.Hold(tape.New(toDevice, program.Buffers, x.DType, x.Dims...))
		})
	case moveHook:
		x.afterMove(tape)
	}
}

// ForEach calls parameter and buffer for all parameters and buffers, in the order in which .to(device) moves them.
func (t *Tree) ForEach(parameter func(*Parameter), buffer func(*Buffer)) {
	for _, m := range t.moved {
		switch x := m.(type) {
		case *Parameter:
			parameter(x)
		case *Buffer:
			buffer(x)
		}
	}
}

// toDevice is the name of the dispatcher call of a move, _to_copy's TorchScript function.
const toDevice = "to_dtype_layout"

func (p *Parameter) move(tape *trace.Tape) {
	if p.load != nil {
		p.load(tape)
		return
	}
	p.Tensor = tape.Hold(tape.NewStrided(toDevice, program.Weights, p.DType, p.Dims, p.Strides))
	if !p.Frozen {
		p.Leaf()
	}
}

// SetTraining sets training mode of all modules, or evaluation mode if on is false.
func (t *Tree) SetTraining(on bool) {
	for _, m := range t.modules {
		m.eval = !on
	}
}

// Freeze sets requires_grad=False for all parameters of the given modules and their children.
func Freeze(modules ...any) {
	for _, m := range modules {
		for _, p := range NewTree(m).Parameters {
			p.Frozen = true
		}
	}
}
