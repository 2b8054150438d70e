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

// Module is embedded by every layer, as layers derive from torch.nn.Module. Its parameters, buffers and children are
// the exported fields of the layer, in the order of their declaration, which must be PyTorch's order.
type Module struct {
	path trace.Path
	eval bool
	tree *Tree // the last that has the module
}

// ModulePath returns the path of the module in the model, which [NewTree] sets.
func (m *Module) ModulePath() *trace.Path { return &m.path }

// Training reports whether the module is in training mode.
func (m *Module) Training() bool { return !m.eval }

// Parameters returns the parameters of the module and its children in PyTorch's order, after [NewTree] has visited it.
func (m *Module) Parameters() (below []*Parameter) {
	for i, n := range m.tree.names {
		if Below(join(n.module, n.own), m.path.Name) {
			below = append(below, m.tree.Parameters[i])
		}
	}
	return below
}

func (m *Module) base() *Module { return m }

// TorchNames maps the names of a module's children here to their names in PyTorch. A module that embeds it renames its
// children.
type TorchNames map[string]string

// TorchName returns the name of a child in PyTorch, its own if it is not listed.
func (n TorchNames) TorchName(own string) string {
	if other, ok := n[own]; ok {
		return other
	}
	return own
}

// Parameter is a trained tensor: the shape is known at once, the tensor only after the model has moved to a device.
type Parameter struct {
	*trace.Tensor
	Dims   []int64
	DType  trace.DType
	Frozen bool // requires_grad is off
	Away   bool // another rank of a pipeline has it
	// Strides are the strides of a parameter that is dense in another order than its dimensions', else nil.
	Strides []int64
	// load brings the parameter to the device other than by a copy; movesLater reports whether [MoveAdapters] moves it.
	load       func(t *trace.Tape)
	movesLater bool
	// returns reports whether from_pretrained takes it back to the host before it is packed (Bnb8bitQuantize).
	returns bool
	// unpack computes the value that an access of the module's attribute returns, in place of the packed parameter.
	unpack *unpacking
	// wrapper is the adapter of it.
	wrapper *ParamWrapper
	tree    *Tree // the last that has the parameter
}

// NewParameter returns an fp32 parameter.
func NewParameter(dims ...int64) *Parameter { return &Parameter{Dims: dims, DType: trace.F32} }

// Numel returns the number of elements; it needs no device.
func (p *Parameter) Numel() int64 { return product(p.Dims) }

// T returns the parameter's tensor, nil for a layer without that parameter.
func (p *Parameter) T() *trace.Tensor {
	if p == nil {
		return nil
	}
	return p.Tensor
}

// Buffer is a tensor of a module that is not trained.
type Buffer struct {
	*trace.Tensor
	Dims  []int64
	DType trace.DType
	// OfWeights reports whether it has the type of the weights.
	OfWeights bool
	// Constant reports whether it is a tensor of an exported graph and not registered with a module.
	Constant bool
	Away     bool  // another rank of a pipeline has it, or the host
	tree     *Tree // the last that has the buffer
}

// NewBufferOfWeights returns a buffer in the type of the model's weights.
func NewBufferOfWeights(dims ...int64) *Buffer {
	return &Buffer{Dims: dims, DType: trace.F32, OfWeights: true}
}

// NewBuffer returns a registered buffer.
func NewBuffer(d trace.DType, dims ...int64) *Buffer { return &Buffer{Dims: dims, DType: d} }

// T returns the buffer's tensor, nil for a layer without that buffer.
func (b *Buffer) T() *trace.Tensor {
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

// Tree is a model seen as PyTorch sees it: modules with names, parameters and
// buffers in the orders of named_parameters() and of Module._apply().
type Tree struct {
	// Parameters are in the order of parameters().
	Parameters []*Parameter
	Buffers    []*Buffer
	buffered   []string // the modules that buffers are of
	names      []parameterName
	moved      []any // parameters and buffers as .to(device) moves them
	modules    []*Module
	linears    []string
	tied       []tiedParameter
	lists      []list
	packs      []PacksParameters
	wraps      []WrapsParameters
	wrapped    []string // the paths of wrappers
	// others are structs that were visited and are neither modules nor parameters.
	others map[uintptr]bool
}

// parameterName is the path of a module and what it calls a parameter.
type parameterName struct{ module, own string }

// tiedParameter is a parameter that another module shares under the name own, in the field at.
type tiedParameter struct {
	p           *Parameter
	module, own string
	at          **Parameter
}

// Untie gives each other module that shares a parameter a copy of its own. It returns the new parameter, without a
// tensor, and its name; nil if no module shares it.
func (t *Tree) Untie(p *Parameter) (own *Parameter, name string) {
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

// Sharing returns the paths of the other modules that share a parameter, which is named after the first one.
func (t *Tree) Sharing(p *Parameter) (modules []string) {
	for _, s := range t.tied {
		if s.p == p {
			modules = append(modules, s.module)
		}
	}
	return modules
}

// Names returns the names of the parameters, as in named_parameters().
func (t *Tree) Names() []string {
	return lists.Map(t.names, func(n parameterName) string { return join(n.module, n.own) })
}

// mover is a layer with a hook that runs after its parameters have moved to a device.
type mover interface{ afterMove(t *trace.Tape) }

// NewTree walks a model: a pointer to a struct that embeds [Module].
func NewTree(model any) *Tree {
	t := &Tree{}
	t.walk(reflect.ValueOf(model), "")
	return t
}

// walk adds the modules and parameters below v to the tree. A module's own parameters come before its children's, as in
// parameters(); .to(device) moves the children first.
func (t *Tree) walk(v reflect.Value, path string) {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice:
		t.lists = append(t.lists, list{path, v})
		for i := range v.Len() {
			t.walk(v.Index(i), join(path, strconv.Itoa(i)))
		}
	case reflect.Pointer:
		if v.IsNil() || v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		layer := v.Interface()
		if !t.enter(v, layer, path) {
			return
		}
		if _, linear := layer.(*Linear); linear {
			t.linears = append(t.linears, path)
		}
		if l, ok := layer.(PacksParameters); ok {
			t.packs = append(t.packs, l)
		}
		if l, ok := layer.(WrapsParameters); ok {
			t.wraps, t.wrapped = append(t.wraps, l), append(t.wrapped, path)
		}
		t.module(v.Elem(), layer, path)
	}
}

// enter reports whether a layer (v points to it) is visited for the first time.
func (t *Tree) enter(v reflect.Value, layer any, path string) bool {
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

// module visits the fields of a layer v.
func (t *Tree) module(v reflect.Value, layer any, path string) {
	parameters, buffers := len(t.Parameters), len(t.Buffers)
	if l, ok := layer.(interface {
		ownParameters() ([]string, []*Parameter)
	}); ok {
		names, own := l.ownParameters()
		for i, p := range own {
			t.parameter(p, path, names[i], nil)
		}
	}
	fields := fieldsOf(v.Type())
	for _, f := range fields.tensors {
		switch x := v.Field(f.index).Interface().(type) {
		case *Parameter:
			t.parameter(x, path, f.name, v.Field(f.index).Addr().Interface().(**Parameter))
		case *Buffer:
			t.buffer(x, path)
		}
	}
	parts, held := layer.(*Parts)
	if held {
		for _, b := range parts.buffers {
			t.buffer(b, path)
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
	if l, ok := layer.(mover); ok {
		t.moved = append(t.moved, l)
	}
}

// parameter registers a parameter of a module, which may be nil. If several modules share it, the first one names it.
func (t *Tree) parameter(p *Parameter, module, own string, at **Parameter) {
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

// buffer adds a buffer once, even if several modules share it.
func (t *Tree) buffer(b *Buffer, module string) {
	if b != nil && b.tree != t {
		b.tree = t
		t.Buffers, t.buffered = append(t.Buffers, b), append(t.buffered, module)
	}
}

// field is an exported field of a layer, by its name in PyTorch.
type field struct {
	index int
	name  string
}

// fields returns the fields of a layer's type that hold parameters, buffers or layers.
type fields struct{ tensors, children []field }

// knownFields holds the fields of types that were met before.
var knownFields sync.Map // of reflect.Type to *fields

func fieldsOf(kind reflect.Type) *fields {
	if known, ok := knownFields.Load(kind); ok {
		return known.(*fields)
	}
	out := &fields{}
	for i := range kind.NumField() {
		f := kind.Field(i)
		if !f.IsExported() {
			continue
		}
		at := field{i, fieldName(f)}
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

// fieldName returns the name of a field in PyTorch: its tag, or the Go name in snake case. The tag is empty for a list
// whose elements are the module's own children.
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

// childName returns the name of a layer's child in PyTorch by its field's name; a shared layer may change it.
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

// Numel counts the elements of all parameters and of the trainable ones.
func (t *Tree) Numel() (total, trainable int64) {
	for _, p := range t.Parameters {
		total += p.Numel()
		if !p.Frozen {
			trainable += p.Numel()
		}
	}
	return total, trainable
}

// BufferNumel counts the elements of all buffers.
func (t *Tree) BufferNumel() int64 {
	return lists.Sum(t.Buffers, func(b *Buffer) int64 { return product(b.Dims) })
}

// To records model.to(device): it allocates parameters and buffers on a tape.
func (t *Tree) To(tape *trace.Tape) {
	for _, m := range t.moved {
		t.bring(tape, m)
	}
}

// bring moves a parameter or a buffer, or runs a layer's hook.
func (*Tree) bring(tape *trace.Tape, moved any) {
	switch x := moved.(type) {
	case *Parameter:
		if !x.movesLater {
			tape.OnOtherRank(x.Away, func() { x.move(tape) })
		}
	case *Buffer:
		tape.OnOtherRank(x.Away, func() {
			x.Tensor = tape.Hold(tape.New(moving, program.Buffers, x.DType, x.Dims...))
		})
	case mover:
		x.afterMove(tape)
	}
}

// Each calls functions for parameters and buffers, in the order in which .to(device) moves them.
func (t *Tree) Each(parameter func(*Parameter), buffer func(*Buffer)) {
	for _, m := range t.moved {
		switch x := m.(type) {
		case *Parameter:
			parameter(x)
		case *Buffer:
			buffer(x)
		}
	}
}

// moving is the native function that moves a tensor to a device.
const moving = "to_dtype_layout"

func (p *Parameter) move(tape *trace.Tape) {
	if p.load != nil {
		p.load(tape)
		return
	}
	p.Tensor = tape.Hold(tape.NewStrided(moving, program.Weights, p.DType, p.Dims, p.Strides))
	if !p.Frozen {
		p.Leaf()
	}
}

// Train puts all modules in training mode, or in evaluation mode.
func (t *Tree) Train(on bool) {
	for _, m := range t.modules {
		m.eval = !on
	}
}

// Freeze switches requires_grad off for all parameters below the given modules.
func Freeze(modules ...any) {
	for _, m := range modules {
		for _, p := range NewTree(m).Parameters {
			p.Frozen = true
		}
	}
}
